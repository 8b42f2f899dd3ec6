"""What sessions hold on the stages: cells are found for them, shared, compacted, and taken from idle ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from fleetchat.engine.ledger import should_compact
from fleetchat.errors import FleetError, PeerLost, ProtocolError
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.room import BlockRoom
from fleetchat.fleet.session import ChainState
from fleetchat.fleet.sharing import WORTH_A_FORK, SharedPrompts
from fleetchat.ids import SessionId
from fleetchat.wire.frames import Cancel, Close, Compact, Fork

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet, FleetSession


class Holdings:
    """Of all sessions of a fleet, over all epochs of its chain."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._next_session_id = 1
        self.prompts = SharedPrompts()
        self.evictions = 0  # idle sessions that lost their cells to others
        self.forks = 0  # sessions that began with cells of another one

    @property
    def _chain(self) -> Chain:
        return self._fleet.chain

    @property
    def _forks(self) -> bool:
        return self._room is not None and self._chain.can_fork

    @property
    def _room(self) -> BlockRoom | None:
        return self._fleet.room

    def held_while_waiting(self, session: FleetSession, token_ids: Sequence[int]) -> int | None:
        """How many ids are on the stages, if the session should wait for more; None = it should not.

        It should while another one is being filled with what it lacks, to fork that.
        """
        if not self._forks:
            return None
        held = session.state.reusable(token_ids) if session.state else 0
        if len(token_ids) - held <= WORTH_A_FORK:
            return None
        have = max(held, self._longest_prefix(session, token_ids)[1])
        return have if self.prompts.worth_waiting_for(session.number, token_ids, have) else None

    async def state_for(
        self, session: FleetSession, token_ids: Sequence[int], drafts: int
    ) -> tuple[ChainState, int]:
        """The session's state on the chain, with room for what `token_ids` and the drafts add to it.

        A session that would pass its reservation is compacted; also returns how often (0 or 1).
        """
        if self._room is not None:
            return await self._state_in_blocks(session, self._room, token_ids, drafts), 0
        state, compacted = session.state, 0
        if state is None:
            await self._make_room(session)
            if self._fleet.room is not None:  # it moved meanwhile, to an engine with blocks
                return await self.state_for(session, token_ids, drafts)
            state = session.state = self._new_state()
        first = state.reusable(token_ids)
        if state.physical + len(token_ids) - first + drafts > self._fleet.reservation:
            await self._compact(session, state, first)
            compacted = 1
        return state, compacted

    async def _state_in_blocks(
        self, session: FleetSession, room: BlockRoom, token_ids: Sequence[int], drafts: int
    ) -> ChainState:
        """As `state_for`: shares cells of another session where it can, evicts idle ones where it must."""
        state = session.state
        held = state.reusable(token_ids) if state else 0
        source, shared = None, 0
        if self._forks and len(token_ids) - held > WORTH_A_FORK:
            source, shared = self._longest_prefix(session, token_ids)
        if source is not None and shared >= held + WORTH_A_FORK:
            state = await self._fork_into(session, source, token_ids[:shared])
        elif state is None:
            state = session.state = self._new_state()
        while room is self._room and not room.claim(state.session, len(token_ids) + drafts):
            idle = [one for one in self._fleet.sessions if one.state and not room.admitted(one.number)]
            assert idle, "all that was admitted fits by itself"
            await self._evict(min(idle, key=lambda one: one.last_used), session)
        if room is not self._room:  # the chain was brought back meanwhile, and holds nothing
            return (await self.state_for(session, token_ids, drafts))[0]
        return state

    def _longest_prefix(
        self, session: FleetSession, token_ids: Sequence[int]
    ) -> tuple[ChainState | None, int]:
        """Whose confirmed ids begin like these, and how many of them do; at least one row is left to feed."""
        best, longest = None, 0
        for other in self._fleet.sessions:
            if other.state is None or other is session:
                continue
            shared = min(other.state.reusable(token_ids), other.state.confirmed)
            if shared > longest:
                best, longest = other.state, shared
        return best, longest

    def _new_state(self) -> ChainState:
        number = SessionId(self._next_session_id)
        if self._room is not None:
            state = ChainState(number, blocks=self._room.blocks)
        else:
            state = ChainState(number, rollback=self._fleet.options.manifest.rollback)
        self._next_session_id += 1
        return state

    async def _fork_into(
        self, session: FleetSession, source: ChainState, token_ids: Sequence[int]
    ) -> ChainState:
        """Let the session begin anew with the first cells of `source`, on every stage.

        No await before the FORK is handed over: the source could be evicted meanwhile.
        """
        chain, before, state = self._chain, session.state, self._new_state()
        state.share(source, token_ids)
        session.state = state
        self.forks += 1
        await chain.send_in_band(Fork(chain.epoch, state.session, source.session, len(token_ids)))
        if before is not None and chain is self._chain:  # another chain never heard of it
            await self._close(before)
        return state

    async def tidy(self, session: FleetSession) -> bool:
        """Between two turns: compact a session in which dead cells outweigh. True when it was ordered."""
        state = session.state
        if state is None or self._chain.failure is not None or not should_compact(state.length, state.dead):
            return False
        await self._compact(session, state, state.length)
        return True

    async def _compact(self, session: FleetSession, state: ChainState, keep: int) -> None:
        """Hide what lies behind `keep`, then get rid of all dead cells. Nothing may be in flight."""
        chain = self._chain
        if keep < state.length:
            state.truncate(keep)
            await chain.send_in_band(Cancel(chain.epoch, state.session, keep=keep))
        text = f"{state.dead:,} dead cells were removed, {state.length:,} live ones stay"
        self._fleet.events.note(trio.current_time(), EventKind.COMPACTION, text, session=session.number)
        state.compacted()
        await chain.send_in_band(Compact(chain.epoch, state.session))

    async def drop_state(self, session: FleetSession) -> None:
        """Free the session's cells on every stage; the next slice fills it from its first token."""
        state, session.state = session.state, None
        if state is not None:
            await self._close(state)

    async def _close(self, state: ChainState) -> None:
        if self._room is not None:
            self._room.forget(state.session)
        if self._chain.failure is None:
            with suppress(PeerLost, ProtocolError):  # a chain that is lost frees everything
                await self._chain.send_in_band(Close(self._chain.epoch, state.session))

    async def _make_room(self, newcomer: FleetSession) -> None:
        holders = [one for one in self._fleet.sessions if one.state is not None and one is not newcomer]
        if len(holders) < self._fleet.places:
            return
        idle = [one for one in holders if one.generation is None]
        if not idle:
            raise FleetError(
                f"no room for another conversation: {len(holders)} hold {self._fleet.reservation} cells "
                f"each, the fleet granted {self._chain.cells}",
                hint="wait until a reply ends, close a chat, or lower [model] context",
            )
        await self._evict(min(idle, key=lambda one: one.last_used), newcomer)

    async def _evict(self, idle: FleetSession, newcomer: FleetSession) -> None:
        self.evictions += 1
        cells = idle.state.length if idle.state else 0
        text = f"{cells:,} cells of a chat that waits were given to another"
        self._fleet.events.note(trio.current_time(), EventKind.EVICTION, text, session=idle.number)
        await self.drop_state(idle)
