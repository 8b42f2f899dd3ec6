"""The task that keeps a fleet's chain open: it opens the first epoch, and another one when a stage is lost.

What to do is decided in `recovery.py`. When another chain is to take the place of one that is well, then
`moving.py` makes it ready, and offers it here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from fleetchat.errors import FleetchatError, FleetError, PeerLost, ShardMissing
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.epochs import Epoch, Epochs, OnProgress, OpenLegs, Target
from fleetchat.fleet.moving import Mover, Offer, StartPeers, check_room, described
from fleetchat.fleet.opening import new_chain
from fleetchat.fleet.options import FleetOptions, loading_allowance
from fleetchat.fleet.peers import Peers, start_peers
from fleetchat.fleet.recovery import Attempts, remedy_for
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.trouble import Cause, Loss, Move, Recovery, Remedy, given_up_sentence, trouble_sentence
from fleetchat.transport.tasks import open_tasks

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet

log = logging.getLogger(__name__)


class Supervisor:
    """`run` is a task that never returns; once the fleet has given up it only waits for its end."""

    def __init__(
        self,
        options: FleetOptions,
        key: bytes,
        peers: Peers,
        new_fleet: Callable[[FleetOptions, Chain, str], Fleet],
        *,
        on_progress: OnProgress,
        legs: OpenLegs | None = None,
        start: StartPeers = start_peers,
    ) -> None:
        """`start` is how a move comes by the peers of its chain."""
        self.target = Target(options, key, peers)
        self._new_fleet = new_fleet
        self._on_progress = on_progress
        self._legs = legs
        self._start = start
        largest = max(entry.bin.size for entry in options.manifest.stages)
        self._attempts = Attempts(options.deadlines.with_loading(loading_allowance(largest)))
        self._provided = False  # the peer that refused for want of its shard has it now
        self._offer: Offer | None = None
        self._offered = trio.Event()

    async def run(self, task_status: trio.TaskStatus[Fleet]) -> None:
        """Starts with the open fleet. Raises what kept the first epoch from being opened."""
        try:
            async with open_tasks() as tasks:
                self._tasks = tasks
                self._epochs = Epochs(tasks, self._on_progress, self._legs)
                self._epoch = await self._epochs.open_first(self.target)
                self.target = opened = self._epoch.target
                fleet = self._new_fleet(opened.options, self._epoch.chain, opened.reason)
                fleet.mover = Mover(fleet, self._epochs, self, self._start).move
                task_status.started(fleet)
                await self._supervise(fleet)
        finally:
            with trio.CancelScope(shield=True):
                await self.target.peers.aclose()

    def offer(self, offer: Offer) -> None:
        """Another chain is ready: it takes the place of the one that serves, or of the one that is lost."""
        self._offer = offer
        self._offered.set()

    def withdraw(self) -> None:
        """The offer stands no longer."""
        self._offer, self._offered = None, trio.Event()

    async def _supervise(self, fleet: Fleet) -> None:
        while fleet.failure is None:
            taken = await self._serve(fleet)
            if taken is None:
                await self._epoch.leave()
                await self._recover(fleet)
            elif taken.epoch is None:
                await self._move_apart(fleet, taken)
        await trio.sleep_forever()

    async def _serve(self, fleet: Fleet) -> Offer | None:
        """Until the chain is lost, or left for an offer."""
        async with open_tasks() as tasks:
            tasks.start_soon(fleet.interleaver.run)
            chain = fleet.chain
            taken = await self._wait_end(fleet)
            if taken is None:
                await chain.hang_up()
            tasks.cancel_scope.cancel()
        return taken

    async def _wait_end(self, fleet: Fleet) -> Offer | None:
        while True:
            async with open_tasks() as tasks:
                tasks.start_soon(_cancel_after, fleet.chain.wait_failed, tasks.cancel_scope)
                await self._offered.wait()
                tasks.cancel_scope.cancel()
            if fleet.chain.failure is not None:
                return None
            if (taken := self._take(fleet)) is not None:
                return taken

    def _take(self, fleet: Fleet) -> Offer | None:
        """Leave the chain, whether it is well or lost, for the offer, if there is one that can be taken.

        One that is open serves from now on; another one is to be opened by `_move_apart`.
        """
        offer = self._offer
        if offer is None:
            return None
        self.withdraw()
        if offer.epoch is not None:
            try:
                offer.epoch.chain.check()
                check_room(fleet, offer.epoch.chain)
            except FleetError as refusal:
                offer.settle(refusal)
                return None
        offer.taken = True
        old = self._epoch
        if offer.epoch is not None:
            self._serve_with(fleet, offer.epoch, _move(offer))
            self._tasks.start_soon(_retire, old)
            offer.settle()
        old.chain.fail(PeerLost("the chain was left for another one"))
        return offer

    async def _move_apart(self, fleet: Fleet, offer: Offer) -> None:
        """There is no room for both chains: the old one is closed first, and opened again if need be."""
        old, move = self._epoch, _move(offer)
        refusal: FleetError | None = FleetError("the fleet was closed")
        try:
            await old.leave()
            try:
                opened = await self._open_apart(fleet, offer.target)
            except FleetError as failure:
                refusal = failure
                await self._come_back(fleet, move)
                return
            self._serve_with(fleet, opened, move)
            refusal = None
        finally:
            offer.settle(refusal)
        await old.target.peers.aclose()

    async def _open_apart(self, fleet: Fleet, target: Target) -> Epoch:
        opened = await self._epochs.open_first(target, beside=fleet.chain, on_progress=fleet.note_moving)
        try:
            check_room(fleet, opened.chain)
        except FleetError:
            await opened.leave()
            raise
        return opened

    async def _come_back(self, fleet: Fleet, moved: Move) -> None:
        """The old chain again, as another epoch; when that fails too, it is a loss like any other."""
        chain = new_chain(self.target.options, self.target.peers.addresses, before=fleet.chain)
        try:
            epoch = await self._epochs.open(self.target, chain)
        except FleetError as failure:
            chain.fail(failure)
            fleet.show(chain)
            await self._recover(fleet, chain)
            return
        self._serve_with(fleet, epoch, replace(moved, stages=described(self.target.options), back=True))

    def _serve_with(self, fleet: Fleet, epoch: Epoch, moved: Move) -> None:
        self._epoch, self.target = epoch, epoch.target
        now = trio.current_time()
        move = replace(moved, epoch=epoch.chain.epoch, resumed=now)
        fleet.move_over(epoch.chain, epoch.target.options, epoch.target.reason, move)
        log.info("%s", move.sentence)

    async def _recover(self, fleet: Fleet, chain: Chain | None = None) -> None:
        """Bring the chain back in another epoch, or find that the fleet has failed.

        `chain` is the last epoch that was tried; none: the one that served.
        """
        chain = chain or fleet.chain
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
                return
            fleet.note_trouble(trouble_sentence(loss, remedy, pause=pause), chain, loss.stage)
            with trio.move_on_after(pause):
                await self._offered.wait()
            if (taken := self._take(fleet)) is not None:
                if taken.epoch is None:
                    await self._move_apart(fleet, taken)
                return
            chain = new_chain(self.target.options, self.target.peers.addresses, before=chain)
            failure = await self._attempt(fleet, chain, loss, remedy)
            if failure is None:
                fleet.adopt(chain, Recovery(began, chain.epoch, trio.current_time()))
                log.info("epoch %d serves after the loss of stage %d", chain.epoch, began.stage)
                return
            log.warning("epoch %d: %s", chain.epoch, failure.message)
            chain.fail(failure)
            loss = _loss_of(chain, fallback=loss.stage)

    def _remedy(self, loss: Loss, *, repeated: bool) -> Remedy:
        if self._provided:
            self._provided = False
            return Remedy.REDIAL
        return remedy_for(
            loss.cause,
            embedded=self.target.peers.is_embedded(loss.stage),
            spares=self.target.peers.spares,
            repeated=repeated,
        )

    async def _attempt(self, fleet: Fleet, chain: Chain, loss: Loss, remedy: Remedy) -> FleetError | None:
        """One more epoch; what it failed of."""
        peers, stages = self.target.peers, {loss.stage}
        try:
            if remedy is Remedy.SPARE:
                peers.take_spare(loss.stage, keep=loss.cause is not Cause.REFUSED)
            elif remedy is Remedy.RESTART:
                if loss.cause is Cause.LINK:
                    stages |= {one for one in (loss.stage + 1,) if one < len(chain.stages)}
                await self._restart(stages)
            ended = peers.ended()
            await self._restart(ended)
            for stage, address in zip(chain.stages, peers.addresses, strict=True):
                stage.address = address
            for index in stages.union(ended):
                stage = chain.stages[index]
                stage.state, stage.detail = StageState.RECOVERING, "waiting for it to answer"
            fleet.show(chain)
            self._epoch = await self._epochs.open(self.target, chain)
        except ShardMissing as failure:  # a spare, or a peer that lost its disk: the next attempt finds it
            with suppress(FleetchatError):
                lacking = chain.loss.stage if chain.loss else loss.stage
                await self.target.provide([lacking], self._on_progress)
                self._provided = True
            return failure
        except FleetError as failure:
            return failure
        return None

    async def _restart(self, stages: Sequence[int] | set[int]) -> None:
        for stage in sorted(stages):
            if self.target.peers.is_embedded(stage):
                await self.target.peers.restart(stage)

    def _give_up(self, fleet: Fleet, chain: Chain, remedy: Remedy) -> None:
        began, last = fleet.chain.failure, chain.failure
        assert began is not None
        assert last is not None
        first = _loss_of(fleet.chain)
        fleet.note_trouble(trouble_sentence(first, Remedy.NONE), chain, first.stage)
        if remedy is Remedy.NONE:
            fleet.give_up(last, chain)
            return
        seconds = trio.current_time() - self._attempts.since
        text = given_up_sentence(began.message, self._attempts.count, seconds)
        hint = last.hint or "what was written is kept; try again when the peer is back"
        fleet.give_up(PeerLost(text, hint=hint), chain)


def _move(offer: Offer) -> Move:
    """Begun now, by leaving the chain that serves."""
    now = trio.current_time()
    return Move(described(offer.target.options), 0, now - offer.began, now, now)


async def _cancel_after(wait: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


async def _retire(epoch: Epoch) -> None:
    """A chain that nobody uses any more, and its peers."""
    try:
        await epoch.leave()
    finally:
        with trio.CancelScope(shield=True):
            await epoch.target.peers.aclose()


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
