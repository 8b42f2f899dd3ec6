"""The runtime's face: open a fleet, make sessions, generate replies.

Pure trio; it runs under Textual's thread, under `fleetchat ask` and under tests alike.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from fleetchat.engine.ledger import reserved_cells
from fleetchat.errors import FleetError
from fleetchat.fleet.admission import Admission
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.counters import Counters
from fleetchat.fleet.draft.depth import DepthPolicy
from fleetchat.fleet.epochs import OpenLegs
from fleetchat.fleet.event_log import EventKind, EventLog
from fleetchat.fleet.generation import Generation
from fleetchat.fleet.holdings import Holdings
from fleetchat.fleet.interleaver import Interleaver
from fleetchat.fleet.limits import block_room, chain_limits, check_prompt
from fleetchat.fleet.moving import StartPeers
from fleetchat.fleet.observer import Observer
from fleetchat.fleet.opening import MAX_SLICES
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.pace import PaceKeeper
from fleetchat.fleet.peers import Peers, start_peers, started_peers
from fleetchat.fleet.recorder import Rates
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import ChainState, GenerationRequest
from fleetchat.fleet.speculation import Speculation, open_speculation
from fleetchat.fleet.supervision import Supervisor
from fleetchat.fleet.telemetry import Answer, FleetSnapshot
from fleetchat.fleet.timeline import PassedBatch, Timeline
from fleetchat.fleet.trace import tracing
from fleetchat.fleet.trouble import Move, Recovery, recovered_sentence
from fleetchat.fleet.view import fleet_snapshot
from fleetchat.transport.tasks import open_tasks


class FleetSession:
    """One conversation. Its KV stays on the stages between turns."""

    def __init__(self, number: int, depth: DepthPolicy) -> None:
        self.number = number
        self.depth = depth
        self.counters = Counters()
        self.state: ChainState | None = None
        self.generation: Generation | None = None
        self.last_used = 0.0

    def stop(self) -> None:
        """End the running reply; its text is kept. Call it from the trio thread."""
        if self.generation is not None:
            self.generation.stop()


class Fleet:
    """An open fleet. Use `open_fleet`."""

    def __init__(
        self, options: FleetOptions, chain: Chain, speculation: Speculation, kv_reason: str = ""
    ) -> None:
        self.options = options
        self.kv_reason = kv_reason
        self.speculation = speculation
        speculation.settle(options)
        self.chain = chain
        self.interleaver = Interleaver(chain, chain_limits(options, chain))
        self.timeline = Timeline(len(chain.stages))
        self.interleaver.on_passed = self._note_passed
        self.events = EventLog()
        self.observer = Observer(self.events)
        self.rates = Rates()
        self.counters = Counters()
        self.sessions: list[FleetSession] = []
        self.room = block_room(chain)
        self.admission = Admission(self.room)
        self.holdings = Holdings(self)
        self.failure: FleetError | None = None  # why nothing more is tried to bring the chain back
        self.changes: list[Recovery | Move] = []  # of the chain, each with another epoch
        self.moving = ""  # what is being done to serve with another chain, in words
        self._lost: set[int] = set()  # stages that were told to be, since the chain served last
        self.trouble = ""  # which stage failed, why, and what happens now, in words
        self.on_trouble: Callable[[str], None] = lambda sentence: None
        self.shown_chain = chain  # the epoch that panels show: it may not be open yet
        self.tokens_of_epoch = 0
        self._changed = trio.Event()
        self._numbers = 0
        self.mover: Callable[[FleetOptions], Awaitable[None]] | None = None

    def _note_passed(self, batch: PassedBatch) -> None:
        self.timeline.note_batch(batch, self.chain.leg_seconds())
        self.observer.note(batch)

    @property
    def recoveries(self) -> list[Recovery]:
        """Losses that were overcome."""
        return [change for change in self.changes if isinstance(change, Recovery)]

    @property
    def moves(self) -> int:
        """How often other peers, or another cut, took the place of those before."""
        return sum(isinstance(change, Move) for change in self.changes)

    def adopt(self, chain: Chain, recovery: Recovery) -> None:
        """Serve with another epoch of the chain: its stages hold nothing, every session is filled anew."""
        self._serve_with(chain)
        self.changes.append(recovery)
        text = recovered_sentence(recovery)
        self.events.note(recovery.resumed, EventKind.RECOVERED, text, stage=recovery.loss.stage)
        self._wake()

    def move_over(self, chain: Chain, options: FleetOptions, reason: str, move: Move) -> None:
        """Serve with another chain: other peers, or another cut of the same model."""
        self.options, self.kv_reason = options, reason
        self.speculation.settle(options)
        self._serve_with(chain)
        self.interleaver.pace = PaceKeeper()
        self.timeline.resize(len(chain.stages))
        self.observer.forget()
        self.changes.append(move)
        self.events.note(move.resumed, EventKind.MOVED, move.sentence)
        self._wake()

    def _serve_with(self, chain: Chain) -> None:
        before = self.interleaver
        before.settle()
        for session in self.sessions:
            session.state = None
        self.chain = self.shown_chain = chain
        self.interleaver = Interleaver(chain, chain_limits(self.options, chain))
        self.interleaver.take_over(before)
        self.room = block_room(chain)
        self.trouble, self.tokens_of_epoch = "", 0
        self._lost.clear()
        self.admission.renew(self.room)

    async def move_to(self, options: FleetOptions) -> None:
        """Serve with the peers, the cut and the spares of `options`; answers under way go on there.

        The new chain is opened before the old one is left. Raises FleetError and its kinds when it cannot be
        opened: the old one serves on then.
        """
        assert self.mover is not None, "the supervisor sets it"
        await self.mover(options)

    def note_moving(self, sentence: str) -> None:
        """What is being done for a move; empty when there is none under way."""
        self.moving = sentence

    def note_event(self, kind: EventKind, text: str) -> None:
        """Something happened now that concerns the whole fleet."""
        self.events.note(trio.current_time(), kind, text)

    def note_trouble(self, sentence: str, chain: Chain, stage: int) -> None:
        """`stage` was lost, or still is; `chain` is the epoch in which it was.

        Until the chain serves again every attempt has its sentence, and every lost stage one event.
        """
        self.shown_chain = chain
        self.rates.clear()
        if stage not in self._lost:
            self._lost.add(stage)
            self.events.note(trio.current_time(), EventKind.LOST, sentence, stage=stage)
        if sentence != self.trouble:
            self.trouble = sentence
            self.on_trouble(sentence)

    def show(self, chain: Chain) -> None:
        """Let panels see an epoch that is being opened."""
        self.shown_chain = chain

    def give_up(self, failure: FleetError, chain: Chain) -> None:
        """The chain will not come back; replies under way end with `failure`."""
        self.failure, self.shown_chain = failure, chain
        self.events.note(trio.current_time(), EventKind.FAILED, failure.message)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_recovered(self, lost: Chain) -> None:
        """Until another epoch than `lost` serves. Raises FleetError when there will be none."""
        while self.chain is lost:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()

    async def wait_failed(self) -> FleetError:
        """Until nothing more is tried to bring the chain back; why."""
        while self.failure is None:
            await self._changed.wait()
        return self.failure

    @property
    def reservation(self) -> int:
        """Cells that one session takes on each stage."""
        return reserved_cells(self.options.context)

    @property
    def places(self) -> int:
        """Replies that may be asked for at once; with blocks those that do not fit wait for the others."""
        return MAX_SLICES if self.room else max(1, self.chain.cells // self.reservation)

    def new_session(self) -> FleetSession:
        """A session that holds nothing yet; it takes cells with its first slice."""
        self._numbers += 1
        session = FleetSession(self._numbers, self.speculation.new_depth())
        self.sessions.append(session)
        return session

    async def generate(
        self,
        session: FleetSession,
        request: GenerationRequest,
        decoder: TextDecoder,
        *,
        on_text: Callable[[str], None],
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
    ) -> Answer:
        """One reply. Streams text to `on_text`.

        It goes on over the loss of a stage. When the chain cannot be brought back the Answer ends, its text
        is kept.

        Raises PromptError when the prompt is empty or leaves no room in the context, FleetError when
        no cells are left. With an engine that keeps cells in blocks a reply waits for room instead.
        """
        check_prompt(request, self.options.context)
        if session.generation is not None:
            raise FleetError(f"session {session.number} is busy with a reply")
        generation = Generation(self, session, request, decoder, on_text=on_text, on_prefill=on_prefill)
        session.generation = generation
        longest = min(self.options.context, len(request.token_ids) + request.max_tokens)
        held = session.state.length if session.state else 0
        try:
            await self.admission.enter(session.number, max(longest, held))
            self.interleaver.active.add(session.number)
            return await generation.run()
        except FleetError as refusal:
            if self.failure is None:
                self.events.note(
                    trio.current_time(), EventKind.REFUSED, refusal.message, session=session.number
                )
            raise
        finally:
            session.generation = None
            self.rates.forget(session.number)
            self.interleaver.settle()
            self.interleaver.active.discard(session.number)
            self.admission.leave(session.number, session.state.session if session.state else None)
            session.last_used = trio.current_time()

    async def close_session(self, session: FleetSession) -> None:
        """Free a session for good."""
        session.stop()
        if session in self.sessions:
            self.sessions.remove(session)
        self.speculation.forget(session.number)
        await self.holdings.drop_state(session)

    def snapshot(self, *, timeline_seconds: float = 1.0) -> FleetSnapshot:
        """What the panels show, now; the timeline of so many seconds before."""
        self.interleaver.settle()
        return fleet_snapshot(self, trio.current_time(), timeline_seconds=timeline_seconds)


@asynccontextmanager
async def open_fleet(
    options: FleetOptions,
    *,
    on_progress: Callable[[str], None] = lambda line: None,
    legs: OpenLegs | None = None,
) -> AsyncIterator[Fleet]:
    """Start what is embedded, dial all stages, open the chain; everything is gone at the end.

    A stage that is lost later is replaced, see `supervision.py`. `legs` gets the stages' addresses and says
    where the data links are dialled instead (see `Opening`). Raises FleetError and its kinds (unreachable,
    refused, wrong key) with one clear line.
    """
    key = options.key or secrets.token_bytes(32)
    speculation = await open_speculation(options)
    async with (
        started_peers(options, key, on_progress) as peers,
        keep_fleet(options, key, peers, speculation, on_progress=on_progress, legs=legs) as fleet,
    ):
        yield fleet


@asynccontextmanager
async def keep_fleet(
    options: FleetOptions,
    key: bytes,
    peers: Peers,
    speculation: Speculation,
    *,
    on_progress: Callable[[str], None] = lambda line: None,
    legs: OpenLegs | None = None,
    start: StartPeers = start_peers,
) -> AsyncIterator[Fleet]:
    """A fleet over peers that run already, as long as they can be brought back."""

    def new_fleet(chosen: FleetOptions, chain: Chain, reason: str) -> Fleet:
        return Fleet(chosen, chain, speculation, reason)

    supervisor = Supervisor(options, key, peers, new_fleet, on_progress=on_progress, legs=legs, start=start)
    async with open_tasks() as tasks:
        fleet: Fleet = await tasks.start(supervisor.run)
        with tracing(fleet.options, fleet.timeline):
            yield fleet
        tasks.cancel_scope.cancel()


__all__ = ["Fleet", "FleetOptions", "FleetSession", "OpenLegs", "keep_fleet", "open_fleet"]
