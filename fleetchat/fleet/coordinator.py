"""The runtime's face: open a fleet, make sessions, generate replies.

Pure trio; it runs under Textual's thread, under `fleetchat ask` and under tests alike.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from fleetchat.engine.ledger import reserved_cells, should_compact
from fleetchat.errors import FleetError, PeerLost, ProtocolError
from fleetchat.fleet.admission import Admission
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.counters import Counters
from fleetchat.fleet.draft.depth import DepthPolicy
from fleetchat.fleet.event_log import EventKind, EventLog
from fleetchat.fleet.generation import Generation
from fleetchat.fleet.interleaver import Interleaver
from fleetchat.fleet.limits import block_room, chain_limits, check_prompt
from fleetchat.fleet.observer import Observer
from fleetchat.fleet.opening import MAX_SLICES
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.peers import Peers, started_peers
from fleetchat.fleet.recorder import Rate
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.room import BlockRoom
from fleetchat.fleet.session import ChainState, GenerationRequest
from fleetchat.fleet.speculation import Speculation, open_speculation
from fleetchat.fleet.supervision import OpenLegs, Supervisor
from fleetchat.fleet.telemetry import Answer, FleetSnapshot
from fleetchat.fleet.timeline import PassedBatch, Timeline
from fleetchat.fleet.trace import tracing
from fleetchat.fleet.trouble import Recovery, recovered_sentence
from fleetchat.fleet.view import fleet_snapshot
from fleetchat.ids import SessionId
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import Cancel, Close, Compact, Fork


class FleetSession:
    """One conversation. Its KV stays on the stages between turns."""

    def __init__(self, number: int, depth: DepthPolicy) -> None:
        self.number = number
        self.depth = depth
        self.counters = Counters()
        self.state: ChainState | None = None
        self.generation: Generation | None = None
        self.rate = Rate()
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
        self.chain = chain
        self.interleaver = Interleaver(chain, chain_limits(options, chain))
        self.timeline = Timeline(len(chain.stages))
        self.interleaver.on_passed = self._note_passed
        self.events = EventLog()
        self.observer = Observer(self.events)
        self.rate = Rate()
        self.counters = Counters()
        self.sessions: list[FleetSession] = []
        self.room = block_room(chain)
        self.admission = Admission(self.room)
        self.evictions = 0  # idle sessions that lost their cells to others
        self.forks = 0  # sessions that began with cells of another one
        self.failure: FleetError | None = None  # why nothing more is tried to bring the chain back
        self.recoveries: list[Recovery] = []
        self.trouble = ""  # which stage failed, why, and what happens now, in words
        self.on_trouble: Callable[[str], None] = lambda sentence: None
        self.shown_chain = chain  # the epoch that panels show: it may not be open yet
        self.tokens_of_epoch = 0
        self._changed = trio.Event()
        self._numbers = 0
        self._next_session_id = 1

    def _note_passed(self, batch: PassedBatch) -> None:
        self.timeline.note_batch(batch, self.chain.leg_seconds())
        self.observer.note(batch)

    def adopt(self, chain: Chain, recovery: Recovery) -> None:
        """Serve with another epoch of the chain: its stages hold nothing, every session is filled anew."""
        for session in self.sessions:
            session.state = None
        before, self.chain, self.shown_chain = self.interleaver, chain, chain
        self.interleaver = Interleaver(chain, chain_limits(self.options, chain))
        self.interleaver.take_over(before)
        self.room = block_room(chain)
        self.recoveries.append(recovery)
        self.events.note(
            recovery.resumed, EventKind.RECOVERED, recovered_sentence(recovery), stage=recovery.loss.stage
        )
        self.trouble, self.tokens_of_epoch = "", 0
        self.admission.renew(self.room)
        self._wake()

    def note_trouble(self, sentence: str, chain: Chain) -> None:
        """A stage was lost; `chain` is the epoch in which it was."""
        self.shown_chain = chain
        if sentence != self.trouble:
            self.trouble = sentence
            stage = chain.loss.stage if chain.loss else None
            self.events.note(trio.current_time(), EventKind.LOST, sentence, stage=stage)
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
            self.interleaver.settle()
            self.interleaver.active.discard(session.number)
            self.admission.leave(session.number, session.state.session if session.state else None)
            session.last_used = trio.current_time()

    async def state_for(
        self, session: FleetSession, token_ids: Sequence[int], drafts: int
    ) -> tuple[ChainState, int]:
        """The session's state on the chain, with room for what `token_ids` and the drafts add to it.

        A session that would pass its reservation is compacted; also returns how often (0 or 1).
        """
        if self.room is not None:
            return await self._state_in_blocks(session, self.room, token_ids, drafts), 0
        state, compacted = session.state, 0
        if state is None:
            await self._make_room(session)
            state = session.state = self._new_state()
        first = state.reusable(token_ids)
        if state.physical + len(token_ids) - first + drafts > self.reservation:
            await self._compact(session, state, first)
            compacted = 1
        return state, compacted

    async def _state_in_blocks(
        self, session: FleetSession, room: BlockRoom, token_ids: Sequence[int], drafts: int
    ) -> ChainState:
        """As `state_for`: shares cells of another session where it can, evicts idle ones where it must."""
        state = session.state
        held = state.reusable(token_ids) if state else 0
        size = room.blocks.block_size
        source, shared = None, 0
        if self.chain.can_fork and len(token_ids) - held > size:
            source, shared = self._longest_prefix(session, token_ids)
        if source is not None and shared >= held + size:
            state = await self._fork_into(session, source, token_ids[:shared])
        elif state is None:
            state = session.state = self._new_state()
        while room is self.room and not room.claim(state.session, len(token_ids) + drafts):
            idle = [one for one in self.sessions if one.state and not room.admitted(one.number)]
            assert idle, "all that was admitted fits by itself"
            await self._evict(min(idle, key=lambda one: one.last_used), session)
        if room is not self.room:  # the chain was brought back meanwhile, and holds nothing
            return (await self.state_for(session, token_ids, drafts))[0]
        return state

    def _longest_prefix(
        self, session: FleetSession, token_ids: Sequence[int]
    ) -> tuple[ChainState | None, int]:
        """Whose confirmed ids begin like these, and how many of them do; at least one row is left to feed."""
        best, longest = None, 0
        for other in self.sessions:
            if other.state is None or other is session:
                continue
            shared = min(other.state.reusable(token_ids), other.state.confirmed)
            if shared > longest:
                best, longest = other.state, shared
        return best, longest

    def _new_state(self) -> ChainState:
        state = ChainState(SessionId(self._next_session_id), blocks=self.room.blocks if self.room else None)
        self._next_session_id += 1
        return state

    async def _fork_into(
        self, session: FleetSession, source: ChainState, token_ids: Sequence[int]
    ) -> ChainState:
        """Let the session begin anew with the first cells of `source`, on every stage.

        No await before the FORK is handed over: the source could be evicted meanwhile.
        """
        before, state = session.state, self._new_state()
        state.share(source, token_ids)
        session.state = state
        self.forks += 1
        fork = Fork(self.chain.epoch, state.session, source.session, len(token_ids))
        await self.chain.send_in_band(fork)
        if before is not None:
            await self._close(before)
        return state

    async def tidy(self, session: FleetSession) -> bool:
        """Between two turns: compact a session in which dead cells outweigh. True when it was ordered."""
        state = session.state
        if state is None or self.chain.failure is not None or not should_compact(state.length, state.dead):
            return False
        await self._compact(session, state, state.length)
        return True

    async def _compact(self, session: FleetSession, state: ChainState, keep: int) -> None:
        """Hide what lies behind `keep`, then get rid of all dead cells. Nothing may be in flight."""
        if keep < state.length:
            state.truncate(keep)
            await self.chain.send_in_band(Cancel(self.chain.epoch, state.session, keep=keep))
        text = f"{state.dead:,} dead cells were removed, {state.length:,} live ones stay"
        self.events.note(trio.current_time(), EventKind.COMPACTION, text, session=session.number)
        state.compacted()
        await self.chain.send_in_band(Compact(self.chain.epoch, state.session))

    async def drop_state(self, session: FleetSession) -> None:
        """Free the session's cells on every stage; the next slice fills it from its first token."""
        state, session.state = session.state, None
        if state is not None:
            await self._close(state)

    async def _close(self, state: ChainState) -> None:
        if self.room is not None:
            self.room.forget(state.session)
        if self.chain.failure is None:
            with suppress(PeerLost, ProtocolError):  # a chain that is lost frees everything
                await self.chain.send_in_band(Close(self.chain.epoch, state.session))

    async def _make_room(self, newcomer: FleetSession) -> None:
        holders = [one for one in self.sessions if one.state is not None and one is not newcomer]
        if len(holders) < self.places:
            return
        idle = [one for one in holders if one.generation is None]
        if not idle:
            raise FleetError(
                f"no room for another conversation: {len(holders)} hold {self.reservation} cells each, "
                f"the fleet granted {self.chain.cells}",
                hint="wait until a reply ends, close a chat, or lower [model] context",
            )
        await self._evict(min(idle, key=lambda one: one.last_used), newcomer)

    async def _evict(self, idle: FleetSession, newcomer: FleetSession) -> None:
        self.evictions += 1
        cells = idle.state.length if idle.state else 0
        text = f"{cells:,} cells of a chat that waits were given to another"
        self.events.note(trio.current_time(), EventKind.EVICTION, text, session=idle.number)
        await self.drop_state(idle)

    async def close_session(self, session: FleetSession) -> None:
        """Free a session for good."""
        session.stop()
        if session in self.sessions:
            self.sessions.remove(session)
        self.speculation.forget(session.number)
        await self.drop_state(session)

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
) -> AsyncIterator[Fleet]:
    """A fleet over peers that run already, as long as they can be brought back."""

    def new_fleet(chosen: FleetOptions, chain: Chain, reason: str) -> Fleet:
        return Fleet(chosen, chain, speculation, reason)

    supervisor = Supervisor(options, key, peers, new_fleet, on_progress=on_progress, legs=legs)
    async with open_tasks() as tasks:
        fleet: Fleet = await tasks.start(supervisor.run)
        with tracing(fleet.options, fleet.timeline):
            yield fleet
        tasks.cancel_scope.cancel()


__all__ = ["Fleet", "FleetOptions", "FleetSession", "OpenLegs", "keep_fleet", "open_fleet"]
