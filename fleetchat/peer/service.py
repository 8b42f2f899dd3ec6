"""One chain on one stage, as the event loop sees it: its links, what waits to be sent, its end.

`run` lives as long as the chain: it ends when the control link is gone or an OPEN with a higher epoch
replaces the chain (the caller cancels it), or when something of the chain broke (it says so itself).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.errors import FleetError, PeerLost, ProtocolError, RemoteProtocolError
from fleetchat.ids import StageIndex
from fleetchat.peer.downstream import GOODBYE_DEADLINE, connect_next, say_goodbye
from fleetchat.peer.faults import ChainFault, error_frame
from fleetchat.peer.inference import Outgoing, ServedChain
from fleetchat.peer.loading import LoadedStage, LoadedStages
from fleetchat.peer.queue import QueuedBatch, QueuedItem, ServedKey, queue_byte_limit
from fleetchat.peer.report import describe_ready, describe_stats
from fleetchat.peer.stage import StagePlan, StageWorker
from fleetchat.transport.heartbeat import Heartbeat
from fleetchat.transport.link import Link
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import (
    Attached,
    AttachRole,
    Cancel,
    Close,
    Compact,
    Error,
    FaultCode,
    Fork,
    Forward,
    Frame,
    Goodbye,
    InBand,
    Open,
    Progress,
    Result,
    Stats,
)
from fleetchat.wire.limits import downstream_limits, upstream_limits

PROGRESS_INTERVAL = 0.25  # seconds: at most four a second
PING_INTERVAL = 0.5  # seconds, on the link to the next stage
SILENCE = 6.0
"""Seconds of silence on the link to the next stage after which it is broken. A second more than the
coordinator gives a control link: when that stage stands still, the coordinator is to notice by itself."""

Report = Callable[[Frame], Awaitable[None]]  # sends whole frames: cancelling it never cuts one in two

_log = logging.getLogger(__name__)


class ChainService:
    """Attach data links with `serve_data_link`; both ends of the chain see GOODBYE when it is over."""

    def __init__(
        self,
        open_: Open,
        manifest: Manifest,
        stages: LoadedStages,
        key: bytes,
        report: Report,
        *,
        ping: float = PING_INTERVAL,
        silence: float = SILENCE,
    ) -> None:
        self.open = open_
        self.key = ServedKey(open_.chain, open_.epoch)
        self.ended = trio.Event()
        self.dropped_frames = 0
        self._manifest = manifest
        self._stages = stages
        self._shared_key = key
        self._report = report
        self._ping, self._silence = ping, silence
        self._is_last = open_.next_address is None
        self._links: dict[AttachRole, Link] = {}
        self._return_attached = trio.Event()
        self._scope = trio.CancelScope()
        self._sender = trio.CancelScope(shield=True)
        self._fault: FleetError | None = None
        self._stage: LoadedStage | None = None
        self._worker: StageWorker | None = None
        self._serving = False
        self._cells = 0
        self._next: Link | None = None
        self._room: trio.Event | None = None  # somebody waits until a batch was carried out
        self._outbox, self._outgoing = trio.open_memory_channel[tuple[QueuedItem, Outgoing] | Link](math.inf)
        self._handed_over = 0  # to the sender; counted on the inference thread
        self._dealt_with = 0  # by the sender; counted on the trio thread
        self._token = trio.lowlevel.current_trio_token()
        hidden = open_.hidden if open_.stage else 0  # into the first stage come token ids only
        self._byte_limit = queue_byte_limit(
            max_rows=open_.max_rows, hidden=hidden, wire_dtype=open_.wire_dtype
        )

    def cancel(self) -> None:
        """End the chain; `ended` is set when its cells are free again."""
        self._scope.cancel()

    def fail(self, fault: FleetError) -> None:
        """End the chain and tell the coordinator why. The first fault is the cause."""
        if self._fault is None:
            self._fault = fault
        self._scope.cancel()

    async def run(self) -> None:
        """Load, connect, say READY, then send on what the inference thread gives."""
        try:
            with self._scope:
                try:
                    await self._serve()
                except FleetError as fault:
                    self.fail(fault)
        finally:
            if self._stage is not None:
                self._stages.leave(self._stage, self.key)
            self._scope.cancel()
            self.ended.set()
        if self._fault is not None:
            _log.info("chain %s, stage %d: %s", self.open.chain[:8], self.open.stage, self._fault.message)
            with suppress(PeerLost, ProtocolError):
                await self._report(error_frame(self._fault))

    async def serve_data_link(self, link: Link, role: AttachRole) -> None:
        """Answer an ATTACH and read the link until it or the chain ends."""
        if self.ended.is_set() or (role is AttachRole.RETURN and not self._is_last) or role in self._links:
            text = f"stage {self.open.stage} does not take another {role.value} link"
            await link.send(Error(FaultCode.PROTOCOL, text))
            return
        self._links[role] = link
        try:
            with trio.CancelScope() as scope:
                await self._answer_attach(link, role, scope)
        finally:
            await say_goodbye(link, "the chain has ended")

    def statistics(self) -> Stats:
        """The answer to STATS_REQUEST; it never waits for the inference thread."""
        sessions = self._worker.statistics() if self._worker else ()
        return describe_stats(
            sessions,
            cells_granted=self._cells,
            queue_length=self._stage.thread.queue_length(self.key) if self._stage else 0,
            batches=self._worker.batches if self._worker else 0,
            next_round_trip_us=self._next.median_round_trip_us if self._next else 0,
            dropped_frames=self.dropped_frames,
        )

    async def _serve(self) -> None:
        self._stage = self._stages.enter(self.key, self.open, self._manifest)
        async with open_tasks() as tasks:
            async with open_tasks() as preparing:
                preparing.start_soon(self._connect_next, tasks)
                preparing.start_soon(self._load, self._stage)
            self._serving = True  # before READY is sent: its answer may be here before the sending returns
            await self._report(
                describe_ready(
                    self._stage.traits,
                    self._manifest,
                    cells=self._cells,
                    device=self._stages.device,
                    settings=self._stage.settings,
                )
            )
            tasks.start_soon(self._send_on)
            try:
                await trio.sleep_forever()
            finally:
                self._outbox.close()
                self._sender.deadline = trio.current_time() + GOODBYE_DEADLINE

    async def _load(self, stage: LoadedStage) -> None:
        async with open_tasks() as tasks:
            tasks.start_soon(self._report_progress, stage)
            await self._stages.wait_loaded(stage)
            tasks.cancel_scope.cancel()
        self._cells = stage.grant(self.key, self.open)
        assert stage.engine is not None
        plan = StagePlan(
            chain=self.open.chain,
            is_last=self._is_last,
            hidden=self.open.hidden,
            vocabulary=self.open.vocabulary,
            wire_dtype=self.open.wire_dtype,
            cells=self._cells,
        )
        self._worker = StageWorker(stage.engine, plan)
        stage.thread.open_chain(ServedChain(self.key, self._worker, self._on_done, self._on_fault))

    async def _report_progress(self, stage: LoadedStage) -> None:
        reported: tuple[str, int, int] | None = None
        while True:
            if stage.step != reported:
                reported = stage.step
                await self._report(Progress(*reported))
            await trio.sleep(PROGRESS_INTERVAL)

    async def _connect_next(self, tasks: trio.Nursery) -> None:
        """Attach to the next stage; the link is read and pinged as long as the chain lives."""
        if self.open.next_address is None:
            return
        next_stage = StageIndex(self.open.stage + 1)
        link = await connect_next(self.open, self.open.next_address, next_stage, self._shared_key)
        self._next = link
        link.set_limits(downstream_limits(self.open))
        tasks.start_soon(self._watch_next, link)

    async def _watch_next(self, link: Link) -> None:
        """Nothing but PONG, ERROR and GOODBYE comes back; reading it notices its end."""
        try:
            async with open_tasks() as tasks:
                tasks.start_soon(link.keep_pinging, self._ping)
                tasks.start_soon(self._watch_silence, link)
                frame = await link.receive()
                tasks.cancel_scope.cancel()
            if isinstance(frame, Error):
                self.fail(ChainFault(FaultCode.LINK, f"the next stage says: {frame.text}", hint=frame.hint))
            elif not isinstance(frame, Goodbye):  # after GOODBYE that stage's control link says why
                self.fail(ChainFault(FaultCode.PROTOCOL, "the next stage sent what it must not send"))
        except (PeerLost, ProtocolError) as error:
            self.fail(ChainFault(FaultCode.LINK, f"the link to the next stage broke: {error.message}"))
        finally:
            await say_goodbye(link, "the chain has ended")

    async def _watch_silence(self, link: Link) -> None:
        await Heartbeat(link, self._ping).wait_silent(self._silence)
        text = f"nothing was heard over the link to the next stage for {self._silence:g} s"
        self.fail(ChainFault(FaultCode.LINK, text))

    async def _answer_attach(self, link: Link, role: AttachRole, scope: trio.CancelScope) -> None:
        try:
            await link.send(Attached())
            if role is AttachRole.UPSTREAM:
                link.set_limits(upstream_limits(self.open))
            else:
                link.set_limits(downstream_limits(self.open))
                self._return_attached.set()
            async with open_tasks() as tasks:
                tasks.start_soon(self._cancel_at_end, scope)
                await self._read(link)
                tasks.cancel_scope.cancel()
        except (PeerLost, ProtocolError) as error:
            code = FaultCode.LINK if isinstance(error, PeerLost) else FaultCode.PROTOCOL
            self.fail(ChainFault(code, f"the {role.value} link broke: {error.message}", hint=error.hint))

    async def _cancel_at_end(self, scope: trio.CancelScope) -> None:
        await self.ended.wait()
        scope.cancel()

    async def _read(self, link: Link) -> None:
        """Frames of a data link until GOODBYE. What is legal on which link is the protocol's matter."""
        received = link.bytes_received
        while True:
            frame = await link.receive()
            received, before = link.bytes_received, received
            match frame:
                case Forward() | Cancel() | Close() | Compact() | Fork():
                    self._take(frame, received - before)
                    if self._too_much_waits():
                        await self._wait_room(link)
                case Error():
                    raise PeerLost(f"the other side says: {frame.text}", hint=frame.hint or None)
                case Goodbye():
                    return
                case _:
                    raise RemoteProtocolError(f"{type(frame).__name__} on a data link")

    def _take(self, frame: Forward | InBand, received_bytes: int) -> None:
        """Queue a frame; one of another epoch is dropped and counted."""
        if frame.epoch != self.open.epoch:
            self.dropped_frames += 1
            return
        if not self._serving or self._stage is None:
            raise RemoteProtocolError(f"{type(frame).__name__} before READY")
        thread = self._stage.thread
        if isinstance(frame, Forward):
            thread.push_batch(self.key, QueuedBatch(frame, received_bytes, time.perf_counter()))
        elif isinstance(frame, Fork) and not self._stage.traits.can_fork:
            raise RemoteProtocolError(f"FORK, but the {self._stage.traits.name} engine does not fork")
        else:
            thread.push_in_band(self.key, frame)

    async def _wait_room(self, link: Link) -> None:
        """Let the socket push back while more bytes wait than two of the largest batches have.

        PINGs are not read meanwhile: our own ones say that we live.
        """
        while self._too_much_waits():
            room = self._room = self._room or trio.Event()
            if not self._too_much_waits():  # looked at again: what ends now rings the bell
                return
            with trio.move_on_after(self._ping) as scope:
                await room.wait()
            if scope.cancelled_caught:
                await link.ping()

    def _too_much_waits(self) -> bool:
        return self._stage is not None and self._stage.thread.waiting_bytes(self.key) > self._byte_limit

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def _on_done(self, item: QueuedItem, outgoing: Outgoing) -> None:
        """On the inference thread. Sent from here if possible: a turn of the event loop costs 0.3 ms."""
        if self._sent_at_once(outgoing):
            self._release(item)
        else:
            self._put_out((item, outgoing))
        if self._room is not None:
            self._token.run_sync_soon(self._make_room)

    def _sent_at_once(self, outgoing: Outgoing) -> bool:
        link = self._next
        if self._is_last and self._return_attached.is_set() and isinstance(outgoing, Result):
            link = self._links[AttachRole.RETURN]
        if link is None or self._handed_over != self._dealt_with:
            return False
        try:
            sent = link.send_nowait(outgoing)
        except FleetError:
            return False  # the sender meets the same failure, and says so
        if link.unfinished:
            self._put_out(link)
        return sent

    def _put_out(self, what: tuple[QueuedItem, Outgoing] | Link) -> None:
        """Let the sender have it; the count comes first, so that nothing overtakes it."""
        self._handed_over += 1
        self._token.run_sync_soon(self._give_to_sender, what)

    def _give_to_sender(self, what: tuple[QueuedItem, Outgoing] | Link) -> None:
        with suppress(trio.ClosedResourceError):  # the chain has ended meanwhile
            self._outbox.send_nowait(what)

    def _release(self, item: QueuedItem) -> None:
        assert self._stage is not None
        self._stage.thread.release(self.key, item)

    def _on_fault(self, text: str) -> None:
        self.fail(ChainFault(FaultCode.INTERNAL, f"stage {self.open.stage} failed inside: {text}"))

    async def _send_on(self) -> None:
        """Shielded: a frame that was begun is finished also at the chain's end; GOODBYE follows it."""
        assert self._stage is not None
        with self._sender:
            async for what in self._outgoing:
                if isinstance(what, Link):
                    await self._finish(what)
                else:
                    await self._send_item(*what)
                self._dealt_with += 1

    async def _send_item(self, item: QueuedItem, outgoing: Outgoing) -> None:
        if not self._is_last:
            assert self._next is not None
            await self._send(self._next, outgoing)
        elif isinstance(outgoing, Result):
            await self._return_attached.wait()
            await self._send(self._links[AttachRole.RETURN], outgoing)
        self._release(item)

    async def _finish(self, link: Link) -> None:
        """The rest of a frame that was begun in `_sent_at_once`."""
        try:
            await link.flush()
        except PeerLost as error:
            raise ChainFault(FaultCode.LINK, f"the link out of this stage broke: {error.message}") from error

    async def _send(self, link: Link, frame: Outgoing) -> None:
        try:
            await link.send(frame)
        except PeerLost as error:
            raise ChainFault(FaultCode.LINK, f"the link out of this stage broke: {error.message}") from error
