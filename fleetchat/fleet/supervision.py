"""The task that keeps a fleet's chain open: it opens the first epoch, and another one when a stage is lost.

What to do is decided in `recovery.py`. All links of an epoch belong to this task, so that they are opened and
closed in one place whatever happens to the replies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from fleetchat.errors import EngineRefused, FleetchatError, FleetError, PeerLost, ShardDamaged, ShardMissing
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.opening import Opening, new_chain, open_chain
from fleetchat.fleet.options import FleetOptions, candidates
from fleetchat.fleet.peers import Peers
from fleetchat.fleet.recovery import Attempts, remedy_for
from fleetchat.fleet.shards import provide_shards
from fleetchat.fleet.speculation import check_speculation
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.trouble import Cause, Loss, Recovery, Remedy, given_up_sentence, trouble_sentence
from fleetchat.ids import Address
from fleetchat.transport.tasks import open_tasks

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet

OpenLegs = Callable[[Sequence[Address]], AbstractAsyncContextManager[tuple[Address, ...]]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Opened:
    """`options` name the KV engine that serves, `reason` says why it does."""

    chain: Chain
    options: FleetOptions
    reason: str


class Supervisor:
    """`run` is a task that never returns; once the fleet has given up it only waits for its end."""

    def __init__(
        self,
        options: FleetOptions,
        key: bytes,
        peers: Peers,
        new_fleet: Callable[[FleetOptions, Chain, str], Fleet],
        *,
        on_progress: Callable[[str], None],
        legs: OpenLegs | None = None,
    ) -> None:
        self._options = options
        self._key = key
        self._peers = peers
        self._new_fleet = new_fleet
        self._on_progress = on_progress
        self._legs = legs
        self._attempts = Attempts(options.deadlines)
        self._provided = False  # the peer that refused for want of its shard has it now

    async def run(self, task_status: trio.TaskStatus[Fleet]) -> None:
        """Starts with the open fleet. Raises what kept the first epoch from being opened."""
        async with AsyncExitStack() as stack:
            opened = await self._open_first(stack)
            self._options = opened.options
            fleet = self._new_fleet(opened.options, opened.chain, opened.reason)
            task_status.started(fleet)
            await self._serve(fleet)
        while fleet.failure is None:
            async with AsyncExitStack() as stack:
                if await self._recover(stack, fleet):
                    await self._serve(fleet)
        await trio.sleep_forever()

    @staticmethod
    async def _serve(fleet: Fleet) -> None:
        """Until the chain is lost."""
        async with open_tasks() as tasks:
            tasks.start_soon(fleet.interleaver.run)
            await fleet.chain.wait_failed()
            await fleet.chain.hang_up()
            tasks.cancel_scope.cancel()

    async def _open_first(self, stack: AsyncExitStack) -> _Opened:
        """With `auto` the paged engine if every stage passes with it, else the masked one."""
        refusal: EngineRefused | None = None
        for chosen, reason in candidates(self._options):
            if refusal is not None:
                check_speculation(chosen)
                reason = f"not paged: {refusal.message}"
                self._on_progress(reason)
            try:
                return _Opened(await self._open_with_shards(stack, chosen), chosen, reason)
            except EngineRefused as error:
                if self._options.kv != "auto" or refusal is not None:
                    raise
                refusal = error
        raise AssertionError("the last candidate is opened or raises")

    async def _open_with_shards(self, stack: AsyncExitStack, options: FleetOptions) -> Chain:
        """The first epoch; a peer that lacks its shard gets it, once."""
        chain = new_chain(options, self._peers.addresses)
        try:
            await self._open(stack, options, chain)
        except ShardMissing as missing:
            self._on_progress(missing.message)
            try:
                await self._provide(range(len(chain.stages)))
            except ShardDamaged as nothing_to_send:
                raise missing from nothing_to_send
            chain = new_chain(options, self._peers.addresses)
            await self._open(stack, options, chain)
        return chain

    async def _provide(self, stages: Iterable[int]) -> None:
        """Bring the shards of stages that are not embedded to the peers that serve them now."""
        wanted = {
            stage: self._peers.addresses[stage] for stage in stages if not self._peers.is_embedded(stage)
        }
        await provide_shards(self._options, wanted, self._key, self._on_progress)

    async def _open(self, stack: AsyncExitStack, options: FleetOptions, chain: Chain) -> None:
        """The links of one epoch end with `stack`; those of an attempt that failed end here."""
        async with AsyncExitStack() as attempt:
            dialled = None
            if self._legs is not None:
                dialled = await attempt.enter_async_context(self._legs(self._peers.addresses))
            opening = Opening(options, self._key, self._on_progress, dialled)
            await attempt.enter_async_context(open_chain(opening, chain))
            stack.push_async_exit(attempt.pop_all())

    async def _recover(self, stack: AsyncExitStack, fleet: Fleet) -> bool:
        """Bring the chain back in another epoch. False when nothing more is tried: the fleet has failed."""
        chain = fleet.chain
        loss = _loss_of(chain)
        log.warning("lost: %s", chain.failure.message if chain.failure else "")
        lived = loss.noticed - chain.opened_at
        self._attempts.lost(loss.noticed, lived=lived, tokens=fleet.tokens_of_epoch)
        began = loss
        while True:
            repeated = self._attempts.count > 0
            pause = self._attempts.next_pause(trio.current_time())
            remedy = self._remedy(loss, repeated=repeated)
            if pause is None or remedy is Remedy.NONE:
                self._give_up(fleet, chain, remedy)
                return False
            fleet.note_trouble(trouble_sentence(loss, remedy, pause=pause), chain)
            await trio.sleep(pause)
            chain = new_chain(self._options, self._peers.addresses, before=chain)
            failure = await self._attempt(stack, fleet, chain, loss, remedy)
            if failure is None:
                fleet.adopt(chain, Recovery(began, chain.epoch, trio.current_time()))
                log.info("epoch %d serves after the loss of stage %d", chain.epoch, began.stage)
                return True
            log.warning("epoch %d: %s", chain.epoch, failure.message)
            chain.fail(failure)
            loss = _loss_of(chain, fallback=loss.stage)

    def _remedy(self, loss: Loss, *, repeated: bool) -> Remedy:
        if self._provided:
            self._provided = False
            return Remedy.REDIAL
        return remedy_for(
            loss.cause,
            embedded=self._peers.is_embedded(loss.stage),
            spares=self._peers.spares,
            repeated=repeated,
        )

    async def _attempt(
        self, stack: AsyncExitStack, fleet: Fleet, chain: Chain, loss: Loss, remedy: Remedy
    ) -> FleetError | None:
        """One more epoch; what it failed of."""
        stages = {loss.stage}
        try:
            if remedy is Remedy.SPARE:
                self._peers.take_spare(loss.stage, keep=loss.cause is not Cause.REFUSED)
            elif remedy is Remedy.RESTART:
                if loss.cause is Cause.LINK:
                    stages |= {one for one in (loss.stage + 1,) if one < len(chain.stages)}
                await self._restart(stages)
            await self._restart(self._peers.ended())
            for stage, address in zip(chain.stages, self._peers.addresses, strict=True):
                stage.address = address
            for index in stages:
                stage = chain.stages[index]
                stage.state, stage.detail = StageState.RECOVERING, "waiting for it to answer"
            fleet.show(chain)
            await self._open(stack, self._options, chain)
        except ShardMissing as failure:  # a spare, or a peer that lost its disk: the next attempt finds it
            with suppress(FleetchatError):
                await self._provide([chain.loss.stage if chain.loss else loss.stage])
                self._provided = True
            return failure
        except FleetError as failure:
            return failure
        return None

    async def _restart(self, stages: Sequence[int] | set[int]) -> None:
        for stage in sorted(stages):
            if self._peers.is_embedded(stage):
                await self._peers.restart(stage)

    def _give_up(self, fleet: Fleet, chain: Chain, remedy: Remedy) -> None:
        began, last = fleet.chain.failure, chain.failure
        assert began is not None
        assert last is not None
        fleet.note_trouble(trouble_sentence(_loss_of(fleet.chain), Remedy.NONE), chain)
        if remedy is Remedy.NONE:
            fleet.give_up(last, chain)
            return
        seconds = trio.current_time() - self._attempts.since
        text = given_up_sentence(began.message, self._attempts.count, seconds)
        hint = last.hint or "what was written is kept; try again when the peer is back"
        fleet.give_up(PeerLost(text, hint=hint), chain)


def _loss_of(chain: Chain, fallback: int = 0) -> Loss:
    """Who is to blame. Nobody is known: the first that is not ready while others are, else `fallback`."""
    if chain.loss is not None:
        return chain.loss
    unready = [stage.index for stage in chain.stages if stage.ready is None]
    told = 0 < len(unready) < len(chain.stages)
    stage = chain.stages[unready[0] if told else fallback]
    now = trio.current_time()
    return Loss(stage.index, str(stage.address), Cause.UNREACHABLE, chain.suspected or now, now)


__all__ = ["OpenLegs", "Supervisor"]
