"""The runtime's face: open a fleet, make sessions, generate replies.

Pure trio; it runs under Textual's thread, under `fleetchat ask` and under tests alike.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import trio

from fleetchat.engine.ledger import reserved_cells, should_compact
from fleetchat.errors import EngineRefused, FleetError, PromptError, SliceFailed
from fleetchat.fleet.admission import Admission
from fleetchat.fleet.batching import ChainLimits
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.counters import Counters
from fleetchat.fleet.draft.depth import DepthPolicy
from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.generation import Generation
from fleetchat.fleet.interleaver import Interleaver
from fleetchat.fleet.opening import MAX_SLICES, Opening, open_chain
from fleetchat.fleet.options import FleetOptions, available_cores, candidates, threads_per_stage
from fleetchat.fleet.recorder import Rate
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.room import BlockRoom
from fleetchat.fleet.session import ChainState, GenerationRequest
from fleetchat.fleet.speculation import Speculation, check_speculation, open_speculation
from fleetchat.fleet.telemetry import Answer, FleetSnapshot
from fleetchat.fleet.timeline import Timeline
from fleetchat.fleet.trace import tracing
from fleetchat.fleet.view import fleet_snapshot
from fleetchat.ids import Address, SessionId
from fleetchat.paths import log_folder
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import Cancel, Close, Compact, Fork

OpenLegs = Callable[[Sequence[Address]], AbstractAsyncContextManager[tuple[Address, ...]]]


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
        self.interleaver.on_passed = lambda batch: self.timeline.note_batch(batch, chain.leg_seconds())
        self.rate = Rate()
        self.counters = Counters()
        self.sessions: list[FleetSession] = []
        self.room = block_room(chain)
        self.admission = Admission(self.room)
        self.evictions = 0  # idle sessions that lost their cells to others
        self.forks = 0  # sessions that began with cells of another one
        self._numbers = 0
        self._next_session_id = 1

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
        """One reply. Streams text to `on_text`; a failure of the chain ends the Answer, its text is kept.

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
        finally:
            session.generation = None
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
            await self._compact(state, first)
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
        while not room.claim(state.session, len(token_ids) + drafts):
            idle = [one for one in self.sessions if one.state and not room.admitted(one.number)]
            assert idle, "all that was admitted fits by itself"
            self.evictions += 1
            await self.drop_state(min(idle, key=lambda one: one.last_used))
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
        await self._compact(state, state.length)
        return True

    async def _compact(self, state: ChainState, keep: int) -> None:
        """Hide what lies behind `keep`, then get rid of all dead cells. Nothing may be in flight."""
        if keep < state.length:
            state.truncate(keep)
            await self.chain.send_in_band(Cancel(self.chain.epoch, state.session, keep=keep))
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
        await self.drop_state(min(idle, key=lambda one: one.last_used))

    async def close_session(self, session: FleetSession) -> None:
        """Free a session for good."""
        session.stop()
        if session in self.sessions:
            self.sessions.remove(session)
        self.speculation.forget(session.number)
        await self.drop_state(session)

    def snapshot(self, *, timeline_seconds: float = 1.0) -> FleetSnapshot:
        """What the panels show, now; the timeline of so many seconds before."""
        return fleet_snapshot(self, trio.current_time(), timeline_seconds=timeline_seconds)


def block_room(chain: Chain) -> BlockRoom | None:
    """How cells are shared out; None for engines that reserve them for each session."""
    size = max(stage.ready.block_size for stage in chain.stages if stage.ready)
    return BlockRoom(chain.cells, size) if size > 1 else None


def check_prompt(request: GenerationRequest, context: int) -> None:
    """Raises PromptError when there is nothing to continue or no room for one token."""
    if not request.token_ids:
        raise PromptError("the prompt is empty")
    if len(request.token_ids) >= context:
        raise PromptError(
            f"the prompt has {len(request.token_ids):,} tokens, the context holds {context:,} with the reply",
            hint="shorten it, start a new chat, or raise --context",
        )


@asynccontextmanager
async def open_fleet(
    options: FleetOptions,
    *,
    on_progress: Callable[[str], None] = lambda line: None,
    legs: OpenLegs | None = None,
) -> AsyncIterator[Fleet]:
    """Start what is embedded, dial all stages, open the chain; everything is gone at the end.

    `legs` gets the stages' addresses and says where the data links are dialled instead (see `Opening`).
    Raises FleetError and its kinds (unreachable, refused, wrong key) with one clear line.
    """
    key = options.key or secrets.token_bytes(32)
    async with AsyncExitStack() as stack:
        speculation = await open_speculation(options)
        addresses = await _start_embedded(options, key, stack, on_progress)
        dialled = await stack.enter_async_context(legs(addresses)) if legs else None
        opened = await _open_chain(options, key, addresses, dialled, stack, on_progress)
        yield await stack.enter_async_context(
            fleet_over(opened.options, opened.chain, speculation, opened.reason)
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    """`options` name the KV engine that serves, `reason` says why it does."""

    chain: Chain
    options: FleetOptions
    reason: str


async def _open_chain(
    options: FleetOptions,
    key: bytes,
    addresses: list[Address],
    legs: tuple[Address, ...] | None,
    stack: AsyncExitStack,
    on_progress: Callable[[str], None],
) -> _Opened:
    """With `auto` the paged engine if every stage passes with it, else the masked one."""
    refusal: EngineRefused | None = None
    for chosen, reason in candidates(options):
        if refusal is not None:
            check_speculation(chosen)
            reason = f"not paged: {refusal.message}"
            on_progress(reason)
        try:
            opening = Opening(chosen, key, on_progress, legs)
            chain = await stack.enter_async_context(open_chain(opening, addresses))
            return _Opened(chain, chosen, reason)
        except EngineRefused as error:
            if options.kv != "auto" or refusal is not None:
                raise
            refusal = error
    raise AssertionError("the last candidate is opened or raises")


@asynccontextmanager
async def fleet_over(
    options: FleetOptions, chain: Chain, speculation: Speculation, reason: str = ""
) -> AsyncIterator[Fleet]:
    """A fleet on a chain that is open; `reason` says why it has the KV engine that it has."""
    fleet = Fleet(options, chain, speculation, reason)
    with tracing(options, fleet.timeline):
        async with open_tasks() as tasks:
            tasks.start_soon(fleet.interleaver.run)
            yield fleet
            tasks.cancel_scope.cancel()


def chain_limits(options: FleetOptions, chain: Chain) -> ChainLimits:
    """What the batch former must keep to: the least that any stage can do."""
    ready = [stage.ready for stage in chain.stages if stage.ready]
    return ChainLimits(
        stages=len(chain.stages),
        window=chain.window,
        sessions_per_batch=min(stage.sessions_per_batch for stage in ready),
        max_rows=options.context,
        max_slices=MAX_SLICES,
    )


async def _start_embedded(
    options: FleetOptions, key: bytes, stack: AsyncExitStack, on_progress: Callable[[str], None]
) -> list[Address]:
    threads = threads_per_stage(options, available_cores())
    addresses: list[Address] = []
    for index, peer in enumerate(options.peers):
        if peer.address is not None:
            addresses.append(peer.address)
            continue
        on_progress(f"starting shard peer {index}")
        address, _ = await stack.enter_async_context(
            embedded_peer(
                key=key,
                store_root=options.store_root,
                threads=threads,
                log_file=log_folder() / f"peer-{index}.log",
                core=options.cores[index % len(options.cores)] if options.cores else None,
                kv_cells=options.kv_cells,
            )
        )
        addresses.append(address)
    return addresses


__all__ = ["Fleet", "FleetOptions", "FleetSession", "SliceFailed", "open_fleet"]
