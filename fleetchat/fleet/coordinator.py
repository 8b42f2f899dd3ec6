"""The runtime's face: open a fleet, make sessions, generate replies.

Pure trio; it runs under Textual's thread, under `fleetchat ask` and under tests alike.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from fleetchat.engine.ledger import reserved_cells, should_compact
from fleetchat.errors import FleetError, PromptError, SliceFailed
from fleetchat.fleet.batching import ChainLimits
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.draft.depth import DepthPolicy
from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.generation import Generation
from fleetchat.fleet.interleaver import Interleaver
from fleetchat.fleet.opening import MAX_SLICES, Opening, open_chain
from fleetchat.fleet.options import FleetOptions, available_cores, threads_per_stage
from fleetchat.fleet.recorder import Rate
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import ChainState, GenerationRequest
from fleetchat.fleet.speculation import Speculation, open_speculation
from fleetchat.fleet.telemetry import Answer, FleetSnapshot
from fleetchat.fleet.view import fleet_snapshot
from fleetchat.ids import Address, SessionId
from fleetchat.paths import log_folder
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import Cancel, Close, Compact


class FleetSession:
    """One conversation. Its KV stays on the stages between turns."""

    def __init__(self, number: int, depth: DepthPolicy) -> None:
        self.number = number
        self.depth = depth
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

    def __init__(self, options: FleetOptions, chain: Chain, speculation: Speculation) -> None:
        self.options = options
        self.speculation = speculation
        self.chain = chain
        self.interleaver = Interleaver(chain, chain_limits(options, chain))
        self.rate = Rate()
        self.sessions: list[FleetSession] = []
        self._numbers = 0
        self._next_session_id = 1

    @property
    def reservation(self) -> int:
        """Cells that one session takes on each stage."""
        return reserved_cells(self.options.context)

    @property
    def places(self) -> int:
        """Sessions that can have a reply under way at once."""
        return max(1, self.chain.cells // self.reservation)

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
        no cells are left.
        """
        check_prompt(request, self.options.context)
        if session.generation is not None:
            raise FleetError(f"session {session.number} is busy with a reply")
        generation = Generation(self, session, request, decoder, on_text=on_text, on_prefill=on_prefill)
        session.generation = generation
        self.interleaver.active.add(session.number)
        try:
            return await generation.run()
        finally:
            session.generation = None
            self.interleaver.active.discard(session.number)
            session.last_used = trio.current_time()

    async def state_for(
        self, session: FleetSession, token_ids: Sequence[int], drafts: int
    ) -> tuple[ChainState, int]:
        """The session's state on the chain, with room for what `token_ids` and the drafts add to it.

        A session that would pass its reservation is compacted; also returns how often (0 or 1).
        """
        state, compacted = session.state, 0
        if state is None:
            await self._make_room(session)
            state = session.state = ChainState(SessionId(self._next_session_id))
            self._next_session_id += 1
        first = state.reusable(token_ids)
        if state.physical + len(token_ids) - first + drafts > self.reservation:
            await self._compact(state, first)
            compacted = 1
        return state, compacted

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
        if state is not None and self.chain.failure is None:
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

    def snapshot(self) -> FleetSnapshot:
        """What the panels show, now."""
        return fleet_snapshot(self.options, self.chain, self.sessions, self.rate, trio.current_time())


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
    options: FleetOptions, *, on_progress: Callable[[str], None] = lambda line: None
) -> AsyncIterator[Fleet]:
    """Start what is embedded, dial all stages, open the chain; everything is gone at the end.

    Raises FleetError and its kinds (unreachable, refused, wrong key) with one clear line.
    """
    key = options.key or secrets.token_bytes(32)
    async with AsyncExitStack() as stack:
        speculation = await open_speculation(options)
        addresses = await _start_embedded(options, key, stack, on_progress)
        chain = await stack.enter_async_context(open_chain(Opening(options, key, on_progress), addresses))
        yield await stack.enter_async_context(fleet_over(options, chain, speculation))


@asynccontextmanager
async def fleet_over(options: FleetOptions, chain: Chain, speculation: Speculation) -> AsyncIterator[Fleet]:
    """A fleet on a chain that is open."""
    fleet = Fleet(options, chain, speculation)
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
