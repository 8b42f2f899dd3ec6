"""Watching an open chain: a task a link reads what comes, measures it, and names what failed.

A stage that dies breaks several links at once. The control link of the dead one is the best witness, so a
broken data link waits a moment for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from fleetchat.errors import (
    CellsRefused,
    EngineRefused,
    FleetError,
    PeerLost,
    PeerRefused,
    ProtocolError,
    ShardMissing,
)
from fleetchat.fleet.chain import Chain, Stage
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.trouble import Cause
from fleetchat.transport.heartbeat import Heartbeat
from fleetchat.transport.link import Link
from fleetchat.wire.frames import (
    Error,
    FaultCode,
    Frame,
    Goodbye,
    Progress,
    Ready,
    Result,
    Stats,
    StatsRequest,
)

NETWORK_INTERVAL = 0.5  # seconds
STATS_INTERVAL = 1.0  # seconds
FIRST_INTERVAL = 0.1  # seconds, until every leg has a round trip: an `ask` may last half a second
FEW_STEPS = 10  # of a stage that loads: their numbers would read like the numbers of shards
EXPLANATION = 0.25  # seconds that a broken data link waits for a control link to say who died
SHARD_FAULTS = {FaultCode.BUILD_KEY, FaultCode.NO_SHARD, FaultCode.SHARD_DAMAGED}
CONFIGURATION_FAULTS = {FaultCode.MISMATCH, FaultCode.CELLS}


class Readiness:
    """Who has said READY."""

    def __init__(self, chain: Chain, note: Callable[[str], None]) -> None:
        """`note` gets a line whenever a stage has come further."""
        self.note = note
        self._chain = chain
        self._changed = trio.Event()

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self) -> None:
        """Until all stages are ready; raises the failure that ended the chain before that."""
        while any(stage.ready is None for stage in self._chain.stages):
            self._chain.check()
            await self._changed.wait()


async def read_control(link: Link, stage: Stage, chain: Chain, readiness: Readiness) -> None:
    try:
        while True:
            frame = await link.receive()
            match frame:
                case Progress():
                    stage.detail = progress_words(frame)
                    if stage.state is StageState.READY:  # in the epoch before
                        stage.state = StageState.LOADING
                    readiness.note(f"stage {stage.index}: {stage.detail}")
                case Ready():
                    stage.ready, stage.state, stage.detail = frame, StageState.READY, ""
                    readiness.wake()
                case Stats():
                    stage.stats = frame
                case Error(code=FaultCode.LINK):
                    await _suspect(chain, stage, refused(stage, frame))
                case Error():
                    failure = refused(stage, frame)
                    cause = Cause.REFUSED if isinstance(failure, PeerRefused) else Cause.FAULT
                    chain.lose(stage, failure, cause)
                case Goodbye():
                    chain.lose(stage, PeerLost(f"{stage.place} left: {frame.reason}"), Cause.LEFT)
                case _:
                    raise ProtocolError(
                        f"stage {stage.index} sent {type(frame).__name__} on its control link"
                    )
            if chain.failure is not None:
                readiness.wake()  # the link may stay open for long after an ERROR
    except (PeerLost, ProtocolError) as failure:
        chain.lose(stage, _named(failure, stage), _cause_of(failure))
    finally:
        readiness.wake()


def progress_words(progress: Progress) -> str:
    """What a stage is doing; the numbers only where they tell more than the words."""
    if progress.total < FEW_STEPS:
        return progress.what
    return f"{progress.what} {progress.done:,} of {progress.total:,}"


def refused(stage: Stage, error: Error) -> FleetError:
    """An ERROR frame as the failure that the user reads."""
    if error.code == FaultCode.ENGINE:
        return EngineRefused(f"{stage.place}: {error.text}", hint=error.hint or None)
    if error.code in SHARD_FAULTS:
        return ShardMissing(f"{stage.place}: {error.text}", hint=error.hint or None)
    if error.code == FaultCode.CELLS:
        return CellsRefused(f"{stage.place}: {error.text}", hint=error.hint or None)
    kind = PeerRefused if error.code in CONFIGURATION_FAULTS else PeerLost
    return kind(f"{stage.place}: {error.text}", hint=error.hint or None)


def _named(failure: FleetError, stage: Stage) -> FleetError:
    """The same failure with its stage; what a link says begins with the address already."""
    address = str(stage.address)
    if failure.message.startswith(address):
        return type(failure)(stage.place + failure.message.removeprefix(address), hint=failure.hint)
    return type(failure)(f"{stage.place}: {failure.message}", hint=failure.hint)


def _cause_of(failure: FleetError) -> Cause:
    return Cause.GARBAGE if isinstance(failure, ProtocolError) else Cause.DIED


async def watch_heartbeat(link: Link, stage: Stage, chain: Chain) -> None:
    """Silence on a control link: first it is shown, then the stage is lost.

    PINGs are answered off the inference thread, so a stage that computes for long is not silent.
    """
    deadlines = chain.deadlines
    heartbeat = Heartbeat(link, deadlines.ping)
    while (silent := await heartbeat.tick()) < deadlines.lost:
        stage.silent_since = heartbeat.heard if silent >= deadlines.stalled else None
    text = f"{stage.place} stopped answering: nothing was heard of it for {silent:.1f} s"
    chain.lose(stage, PeerLost(text), Cause.SILENT, heard=heartbeat.heard)


async def watch_data_link(link: Link, stage: Stage, chain: Chain) -> None:
    """A data link that swallows everything, while the control links are well."""
    await Heartbeat(link, chain.deadlines.ping).wait_silent(chain.deadlines.silent_data_link)
    await _suspect(chain, stage, PeerLost(f"{stage.place}: nothing comes over its data link any more"))


async def _suspect(chain: Chain, stage: Stage, failure: FleetError, cause: Cause = Cause.LINK) -> None:
    """A data link broke: when one of its ends has died, its control link says so in a moment.

    A stage that is silent already is waited for longer: it may stand still.
    """
    chain.suspect()
    silent = any(one.silent_since is not None for one in chain.stages)
    with trio.move_on_after(chain.deadlines.lost if silent else EXPLANATION):
        await chain.wait_failed()
    chain.lose(stage, failure, cause)


async def read_upstream(link: Link, chain: Chain) -> None:
    """Nothing but PONGs comes back on this link; reading it notices its end."""
    stage = chain.stages[0]
    try:
        raise _unexpected(await link.receive(), "the link into it")
    except (PeerLost, ProtocolError) as failure:
        await _suspect(chain, stage, _named(failure, stage), _cause_on_data(failure))


async def read_results(link: Link, chain: Chain) -> None:
    try:
        while True:
            frame = await link.receive()
            if not isinstance(frame, Result):
                raise _unexpected(frame, "the return link")
            chain.deliver(frame)
    except (PeerLost, ProtocolError) as failure:
        stage = chain.stages[-1]
        await _suspect(chain, stage, _named(failure, stage), _cause_on_data(failure))


def _unexpected(frame: Frame, where: str) -> FleetError:
    """What a frame on a data link means that is no RESULT."""
    match frame:
        case Goodbye():
            return PeerLost(f"it closed {where}: {frame.reason}")
        case Error():
            return PeerLost(frame.text, hint=frame.hint or None)
    return ProtocolError(f"it sent {type(frame).__name__} on {where}")


def _cause_on_data(failure: FleetError) -> Cause:
    return Cause.GARBAGE if isinstance(failure, ProtocolError) else Cause.LINK


async def keep_pinging(link: Link, chain: Chain) -> None:
    with suppress(PeerLost):  # the reader of the same link names the failure
        await link.keep_pinging(chain.deadlines.ping)


async def poll_statistics(link: Link, stage: Stage, chain: Chain) -> None:
    try:
        while True:
            measured = stage is chain.stages[-1] or (stage.stats and stage.stats.next_round_trip_us)
            await trio.sleep(STATS_INTERVAL if measured else FIRST_INTERVAL)
            await link.send(StatsRequest())
    except (PeerLost, ProtocolError):
        return  # the reader of the same link names the failure


async def watch_progress(chain: Chain) -> None:
    """Batches are under way, yet no stage has anything to do: an answer got lost.

    A stage that computes has its batch in its queue, however long it takes.
    """
    patience = max(chain.deadlines.missing, 3 * STATS_INTERVAL)
    results, since = 0, trio.current_time()
    while True:
        await trio.sleep(STATS_INTERVAL / 4 if chain.waiting else STATS_INTERVAL)
        now = trio.current_time()
        working = any(stage.stats is None or stage.stats.queue_length for stage in chain.stages)
        if working or not chain.waiting or chain.results != results:
            results, since = chain.results, now
        elif now - since >= patience:
            stage = chain.stages[-1]
            text = f"{stage.place} owes {chain.waiting} answers, and no stage has anything left to do"
            chain.lose(stage, PeerLost(text), Cause.GARBAGE)


async def note_network(upstream: Link, returning: Link, chain: Chain) -> None:
    """Half a round trip of each leg, once a ping interval, as soon as there is one at first."""
    while True:
        measured = all(
            stage.record.network_ms.percentiles(trio.current_time()).count for stage in chain.stages
        )
        await trio.sleep(NETWORK_INTERVAL if measured else FIRST_INTERVAL)
        now = trio.current_time()
        if upstream.round_trips:
            chain.stages[0].record.network_ms.add(now, upstream.round_trips[-1] / 2000)
        if returning.round_trips:
            chain.return_network_ms.add(now, returning.round_trips[-1] / 2000)
        for stage, following in zip(chain.stages, chain.stages[1:], strict=False):
            if stage.stats and stage.stats.next_round_trip_us:
                following.record.network_ms.add(now, stage.stats.next_round_trip_us / 2000)
