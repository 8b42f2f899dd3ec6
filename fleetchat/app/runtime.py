"""The chat runtime: pure trio, no screen. It starts the fleet, keeps the chats and reports events.

`submit`, `stop`, `close_chat` and `retry` are synchronous and belong to the thread that runs trio.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from fleetchat.app.backend import Backend, ChatModel, OpenFleet
from fleetchat.app.chat_task import ChatTask, GenerationSettings, failed_answer
from fleetchat.app.events import (
    BuildProgressed,
    ChatNumber,
    CutProposed,
    FleetReady,
    ReplyFinished,
    Report,
    RuntimeFailed,
    SnapshotTaken,
    StartProgressed,
    Told,
)
from fleetchat.app.explain import explained, is_told
from fleetchat.app.snapshot_news import RefusedMoves, SnapshotNews
from fleetchat.chat.turn import Turn
from fleetchat.errors import FleetchatError, FleetError

TEXT_INTERVAL = 0.1  # seconds: text reaches the screen at most ten times a second,
SATURATED_INTERVAL = 0.25  # and four times when every stage is kept busy: the stages need the processor more
LAST_WORDS = 1.0  # seconds that replies have to end when the fleet failed

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Served:
    """The open fleet and the nursery in which its chats work."""

    model: ChatModel
    fleet: OpenFleet
    nursery: trio.Nursery


class ChatRuntime:
    """Serves chats until it is cancelled; a fleet that fails is started again on `retry`."""

    def __init__(
        self,
        backend: Backend,
        settings: GenerationSettings,
        report: Report,
        *,
        snapshot_interval: float = 0.25,
    ) -> None:
        """`snapshot_interval` in seconds, at least 0.1."""
        self._backend = backend
        self._settings = settings
        self._report = report
        self._snapshot_interval = max(0.1, snapshot_interval)
        self._chats: dict[ChatNumber, ChatTask] = {}
        self._served: _Served | None = None
        self._stages = 1  # of the chain that the last snapshot showed
        self._begun = trio.Event()  # set, and replaced, when a reply is wanted
        self._flushed = 0.0  # when text was sent to the screen last, on the trio clock
        self._retry = trio.Event()
        self._switch = trio.Event()

    async def run(self) -> None:
        """Never returns but by cancellation."""
        while True:
            self._retry = trio.Event()
            self._switch = trio.Event()
            try:
                await self._serve()
                continue  # another model was chosen
            except Exception as error:
                message, hint = explained(error)
                log.warning("the fleet failed: %s", message, exc_info=not is_told(error))
                self._report(RuntimeFailed(message, hint))
            await self._retry.wait()

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        served = self._served
        if served is None:
            answer = failed_answer("the fleet is not ready", "wait until it is, then send again")
            self._report(ReplyFinished(chat, answer))
            return
        task = self._chats.get(chat)
        if task is None:
            task = self._chats[chat] = ChatTask(chat, self._settings, self._report)
        task.begin()
        self._begun.set()
        self._begun = trio.Event()
        served.nursery.start_soon(task.answer, turn, served.model, served.fleet)

    def stop(self, chat: ChatNumber) -> None:
        if task := self._chats.get(chat):
            task.stop()

    def close_chat(self, chat: ChatNumber) -> None:
        task = self._chats.pop(chat, None)
        if task is None:
            return
        task.stop()
        if self._served is not None:
            self._served.nursery.start_soon(task.close)

    def retry(self) -> None:
        self._retry.set()

    def propose_cut(self) -> None:
        served = self._served
        if served is None:
            self._report(Told("The fleet is not ready"))
        else:
            served.nursery.start_soon(self._propose_cut, served.fleet)

    async def _propose_cut(self, fleet: OpenFleet) -> None:
        try:
            proposed = await fleet.propose_cut()
        except FleetchatError as error:
            self._report(Told(error.message))
        else:
            self._report(CutProposed(proposed.lines, proposed.cut))

    def switch(self, model: str) -> None:
        try:
            self._settings = self._backend.choose(model)
        except FleetchatError as error:
            self._report(RuntimeFailed(error.message, error.hint or ""))
            return
        for task in self._chats.values():
            task.settings = self._settings
            task.stop()
        self._switch.set()
        self._retry.set()

    async def _serve(self) -> None:
        """Open the fleet and answer until it fails, or another model is wanted; raises what it failed of."""
        model = await self._backend.prepare(
            lambda step, done, total: self._report(BuildProgressed(step, done, total))
        )
        opened = self._backend.open_fleet(model, lambda text: self._report(StartProgressed(text)))
        try:
            async with opened as fleet, trio.open_nursery() as nursery:
                self._served = _Served(model, fleet, nursery)
                configured = self._settings.shown_with(model.configured)
                self._report(FleetReady(model.name, fleet.context, configured))
                nursery.start_soon(self._report_snapshots, fleet)
                nursery.start_soon(self._report_text, fleet)
                failure = await self._wait_end(fleet)
                await self._let_replies_end()
                self._report(self._take_snapshot(fleet))
                if failure is not None:
                    raise failure
                nursery.cancel_scope.cancel()
        finally:
            self._served = None
            for task in self._chats.values():
                task.forget_session()

    async def _wait_end(self, fleet: OpenFleet) -> FleetError | None:
        """What the fleet failed of; None when another model is wanted."""
        failures: list[FleetError] = []

        async def wait_failed() -> None:
            failures.append(await fleet.wait_failed())
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_failed)
            await self._switch.wait()
            nursery.cancel_scope.cancel()
        return failures[0] if failures else None

    async def _let_replies_end(self) -> None:
        """Replies under way end by the same failure: give them a moment to hand over their text."""
        with trio.move_on_after(LAST_WORDS):
            for task in tuple(self._chats.values()):
                await task.wait_idle()

    async def _report_snapshots(self, fleet: OpenFleet) -> None:
        news, refusals = SnapshotNews(), RefusedMoves()
        while True:
            taken = self._take_snapshot(fleet)
            for text in refusals.new(taken.snapshot):
                self._report(Told(text))
            if self._saturated():
                self._flush()  # text and figures that come together are drawn together
            if news.has(taken) or self._busy():
                self._report(taken)
            with trio.move_on_after(self._snapshot_interval):
                await self._begun.wait()

    def _take_snapshot(self, fleet: OpenFleet) -> SnapshotTaken:
        snapshot = fleet.snapshot()
        self._stages = len(snapshot.stages)
        speeds = {one.session: one.tokens_per_s for one in snapshot.sessions if one.generating}
        chats = {
            chat: number for chat, task in self._chats.items() if (number := task.session_number) is not None
        }
        shown = {chat: speeds[number] for chat, number in chats.items() if number in speeds}
        return SnapshotTaken(snapshot, shown, chats)

    async def _report_text(self, fleet: OpenFleet) -> None:
        while True:
            if not self._busy():
                await self._begun.wait()  # the last text of a reply comes with its end
            await trio.sleep(TEXT_INTERVAL)
            if not self._saturated() or trio.current_time() - self._flushed >= SATURATED_INTERVAL:
                self._flush()

    def _busy(self) -> bool:
        return any(task.busy for task in self._chats.values())

    def _saturated(self) -> bool:
        return sum(task.busy for task in self._chats.values()) >= max(2, self._stages)

    def _flush(self) -> None:
        self._flushed = trio.current_time()
        for task in tuple(self._chats.values()):
            task.flush()
