"""A fleet without stages for tests of the chat runtime: it answers with the words of a script.

Token n is the n-th word. A session that was told to stop, or a fleet that was told to fail, ends its
reply at the next word, as the real one does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from fleetchat.app.backend import ChatModel, OnBuild, OnPrefill, OnStart, OnText, ProposedCut
from fleetchat.app.chat_task import GenerationSettings
from fleetchat.chat.messages import Message
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.overflow import FittedPrompt
from fleetchat.chat.turn import Turn
from fleetchat.errors import FleetError, PeerLost, PromptError
from fleetchat.fleet.event_log import EventLog
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason, FleetSnapshot, SessionSnapshot
from tests.fakes.runtime import CONTEXT, MODEL, answer, snapshot


def ids_of(message: Message) -> tuple[int, ...]:
    """A message is as many tokens as it has words; a reply's ids are kept as they are."""
    if message.token_ids is not None:
        return message.token_ids
    return tuple(1000 + len(word) for word in message.content.split())


class NoDecoder:
    def push(self, token_id: int) -> str:
        return str(token_id)

    def finish(self) -> str:
        return ""


CONFIGURED = ChatOptions(system="Be brief.", overflow="refuse")


@dataclass
class FakeModel:
    name: str = MODEL
    stop_ids: frozenset[int] = frozenset({2})
    configured: ChatOptions = CONFIGURED
    turns: list[Turn] = field(default_factory=list)

    def render(self, turn: Turn, *, context: int, max_tokens: int) -> FittedPrompt:
        self.turns.append(turn)
        if not turn.prompt.strip():
            raise PromptError("the prompt is empty", hint="type something")
        ids = tuple(number for message in turn.messages for number in ids_of(message))
        return FittedPrompt(ids, ("a note",) if len(turn.messages) > 3 else ())

    def decoder(self) -> TextDecoder:
        return NoDecoder()


class FakeSession:
    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet = fleet
        self.number = len(fleet.sessions) + 1
        self.requests: list[GenerationRequest] = []
        self.stopped = False
        self.closed = False
        self.generating = False

    async def generate(
        self, request: GenerationRequest, decoder: TextDecoder, *, on_text: OnText, on_prefill: OnPrefill
    ) -> Answer:
        self.requests.append(request)
        self.stopped = False
        self.generating = True
        try:
            return await self._generate(request, on_text, on_prefill)
        finally:
            self.generating = False

    async def _generate(self, request: GenerationRequest, on_text: OnText, on_prefill: OnPrefill) -> Answer:
        on_prefill(len(request.token_ids), len(request.token_ids))
        words: list[str] = []
        for word in self._fleet.script:
            await trio.sleep(self._fleet.pace)
            if self.stopped:
                return answer(" ".join(words), reason=FinishReason.CANCELLED)
            if self._fleet.failure is not None:
                lost = (self._fleet.failure.message, self._fleet.failure.hint or "")
                return answer(" ".join(words), reason=FinishReason.ERROR, error=lost)
            if self._fleet.bug is not None:
                raise self._fleet.bug
            on_text(f" {word}" if words else word)
            words.append(word)
        return answer(" ".join(words))

    def stop(self) -> None:
        self.stopped = True

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


@dataclass
class FakeFleet:
    script: list[str]
    pace: float  # seconds a word
    context: int = CONTEXT
    failure: FleetError | None = None
    bug: Exception | None = None
    proposed: ProposedCut | None = None
    sessions: list[FakeSession] = field(default_factory=list)
    failed: trio.Event = field(default_factory=trio.Event)
    looked_at: int = 0  # snapshots that were taken
    events: EventLog = field(default_factory=EventLog)

    def new_session(self) -> FakeSession:
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    def snapshot(self) -> FleetSnapshot:
        self.looked_at += 1
        sessions = tuple(
            SessionSnapshot(one.number, 5, 0, 0, one.generating, 10.0 * one.number) for one in self.sessions
        )
        now, events = trio.current_time(), self.events.listed()
        return dataclasses.replace(snapshot(), sessions=sessions, taken=now, events=events)

    async def propose_cut(self) -> ProposedCut:
        await trio.lowlevel.checkpoint()
        if self.proposed is None:
            raise FleetError("too little was measured")
        return self.proposed

    async def wait_failed(self) -> FleetError:
        await self.failed.wait()
        assert self.failure is not None
        return self.failure

    def fail(self, message: str = "stage 1 is lost") -> None:
        self.failure = PeerLost(message, hint="start it again")
        self.failed.set()


@dataclass
class FakeBackend:
    """Every opening takes the next fault of `faults`, or succeeds."""

    script: list[str] = field(default_factory=lambda: ["one", "two", "three"])
    pace: float = 0.03
    faults: list[Exception] = field(default_factory=list)
    model: FakeModel = field(default_factory=FakeModel)
    fleets: list[FakeFleet] = field(default_factory=list)
    closed: int = 0

    def choose(self, model: str) -> GenerationSettings:
        self.model = FakeModel(model)
        return GenerationSettings(SamplingSettings(temperature=0.9), seed=7, max_tokens=5, stop_strings=())

    async def prepare(self, on_build: OnBuild) -> ChatModel:
        await trio.lowlevel.checkpoint()
        on_build("cutting", 1, 2)
        if self.faults:
            raise self.faults.pop(0)
        return self.model

    @asynccontextmanager
    async def open_fleet(self, model: ChatModel, on_start: OnStart) -> AsyncIterator[FakeFleet]:
        assert model is self.model
        on_start("starting shard peer 0")
        self.fleets.append(FakeFleet(self.script, self.pace))
        try:
            yield self.fleets[-1]
        finally:
            self.closed += 1
