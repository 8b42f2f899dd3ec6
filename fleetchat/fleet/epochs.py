"""Open chains, each kept by a task of its own: the next one can be open before the last one is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import trio

from fleetchat.errors import EngineRefused, ShardDamaged, ShardMissing
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.opening import Opening, new_chain, open_chain
from fleetchat.fleet.options import FleetOptions, candidates
from fleetchat.fleet.peers import Peers
from fleetchat.fleet.shards import provide_shards
from fleetchat.fleet.speculation import check_speculation
from fleetchat.ids import Address

OpenLegs = Callable[[Sequence[Address]], AbstractAsyncContextManager[tuple[Address, ...]]]
OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Target:
    """What a chain is opened over. `reason` says why `options` name this KV engine."""

    options: FleetOptions
    key: bytes
    peers: Peers
    reason: str = ""

    async def provide(self, stages: Iterable[int], on_progress: OnProgress) -> None:
        """Bring the shards of stages that are not embedded to the peers that serve them now."""
        wanted = {stage: self.peers.addresses[stage] for stage in stages if not self.peers.is_embedded(stage)}
        await provide_shards(self.options, wanted, self.key, on_progress)


@dataclass(slots=True, eq=False)
class Epoch:
    """A chain that is open until it is left."""

    chain: Chain
    target: Target
    _left: trio.Event = field(default_factory=trio.Event)
    _closed: trio.Event = field(default_factory=trio.Event)

    async def leave(self) -> None:
        """Say GOODBYE to all stages and close the links."""
        self._left.set()
        await self._closed.wait()

    async def keep(self, opening: Opening, legs: OpenLegs | None, task_status: trio.TaskStatus[None]) -> None:
        """The task that the links belong to. Starts when the chain is open; raises what kept it from that."""
        try:
            async with AsyncExitStack() as links:
                if legs is not None:
                    dialled = await links.enter_async_context(legs(self.target.peers.addresses))
                    opening = Opening(opening.options, opening.key, opening.on_progress, dialled)
                await links.enter_async_context(open_chain(opening, self.chain))
                task_status.started()
                await self._left.wait()
        finally:
            self._closed.set()


class Epochs:
    """Opens chains; their tasks live in `tasks`."""

    def __init__(self, tasks: trio.Nursery, on_progress: OnProgress, legs: OpenLegs | None = None) -> None:
        self._tasks = tasks
        self._on_progress = on_progress
        self._legs = legs

    async def open(self, target: Target, chain: Chain, on_progress: OnProgress | None = None) -> Epoch:
        """Raises what `open_chain` raises."""
        epoch = Epoch(chain, target)
        opening = Opening(target.options, target.key, on_progress or self._on_progress)
        await self._tasks.start(epoch.keep, opening, self._legs)
        return epoch

    async def open_first(
        self, target: Target, *, beside: Chain | None = None, on_progress: OnProgress | None = None
    ) -> Epoch:
        """A chain that is no successor of another one; peers that lack their shards get them.

        With `auto` the paged engine if every stage passes with it, else the masked one. `beside` is a chain
        that serves meanwhile: the numbers of the epochs go on behind its own.
        """
        note = on_progress or self._on_progress
        refusal: EngineRefused | None = None
        possible = candidates(target.options)
        for options, reason in possible:
            if refusal is not None:
                check_speculation(options)
                reason = f"not paged: {refusal.message}"
                note(reason)
            try:
                chosen = Target(options, target.key, target.peers, reason)
                return await self._open_with_shards(chosen, beside, note)
            except EngineRefused as error:
                if options is possible[-1][0]:
                    raise
                refusal = error
        raise AssertionError("the last candidate is opened or raises")

    async def _open_with_shards(self, target: Target, beside: Chain | None, note: OnProgress) -> Epoch:
        """A peer that lacks its shard gets it, once."""
        stages = range(len(target.options.peers))
        try:
            return await self.open(target, _chain(target, beside), note)
        except ShardMissing as missing:
            note(missing.message)
            try:
                await target.provide(stages, note)
            except ShardDamaged as nothing_to_send:
                raise missing from nothing_to_send
        return await self.open(target, _chain(target, beside), note)


def _chain(target: Target, beside: Chain | None) -> Chain:
    return new_chain(target.options, target.peers.addresses, beside=beside)


__all__ = ["Epoch", "Epochs", "OnProgress", "OpenLegs", "Target"]
