"""A chain: its links, and batches on their way through it.

The coordinator dials every stage (a control link each), the data link into the first stage and the
return link out of the last. RESULTs are read by their own task and find who waits by their sequence; a
broken link ends the chain for everybody at once.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from fleetchat.errors import FleetError, PeerLost, ProtocolError, RemoteProtocolError
from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.recorder import Samples, StageRecord
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.trouble import Cause, Loss
from fleetchat.ids import Address, BatchSequence, ChainId, Epoch
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Forward, InBand, Ready, Result, ResultStatus, Slice, Stats


@dataclass(slots=True)
class Stage:
    """One stage as the coordinator sees it."""

    index: int
    title: str
    address: Address
    first_layer: int
    last_layer: int
    state: StageState = StageState.CONNECTING
    detail: str = ""
    ready: Ready | None = None
    stats: Stats | None = None
    record: StageRecord = field(default_factory=StageRecord)
    silent_since: float | None = None  # trio clock; None while it is heard

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"stage {self.index} at {self.address}"


OnResult = Callable[[Result], None]

UNTOUCHED = {ResultStatus.SKIPPED, ResultStatus.FAILED}
GRACE = 1.0  # seconds for whoever reads the link to say why it broke


class Chain:
    """One epoch of a chain. Use `open_chain`. All calls come from the trio thread."""

    def __init__(
        self,
        stages: list[Stage],
        *,
        deadlines: Deadlines | None = None,
        vocabulary: int = 0,
        before: Chain | None = None,
    ) -> None:
        """`before` is the lost incarnation of the same chain. `vocabulary` 0 = any token is believed."""
        self.stages = stages
        self.deadlines = deadlines or Deadlines()
        self.identity: ChainId = before.identity if before else ChainId(secrets.token_hex(16))
        self.epoch: Epoch = Epoch(before.epoch + 1) if before else Epoch(1)
        self.return_network_ms: Samples = before.return_network_ms if before else Samples()
        self.failure: FleetError | None = None
        self.loss: Loss | None = None  # what the failure was, when a stage is to blame
        self.suspected: float | None = None  # when the first of its links broke
        self.opened_at = math.inf  # trio clock; set when the chain is open
        self.results = 0
        self.dropped: int = before.dropped if before else 0
        self._vocabulary = vocabulary
        self._failed = trio.Event()
        self._waiting: dict[int, tuple[tuple[Slice, ...], OnResult]] = {}
        self.on_failure: Callable[[], None] = lambda: None
        self._next_sequence = 0
        self._upstream: Link | None = None
        self.window = 1  # batches in flight, the least that any stage takes

    @property
    def cells(self) -> int:
        """The least that any stage granted."""
        return min(stage.ready.cells for stage in self.stages if stage.ready)

    @property
    def can_fork(self) -> bool:
        """Whether every stage shares cells between sessions."""
        return all(stage.ready.can_fork for stage in self.stages if stage.ready)

    @property
    def waiting(self) -> int:
        """Batches without RESULT."""
        return len(self._waiting)

    def leg_seconds(self) -> list[float]:
        """The last measured one-way time of each leg, the return last; 0 = not measured yet."""
        legs = [stage.record.network_ms.latest for stage in self.stages]
        return [(leg or 0.0) / 1000 for leg in (*legs, self.return_network_ms.latest)]

    async def send_batch(self, slices: tuple[Slice, ...], on_result: OnResult) -> None:
        """Hand one batch to the socket; `on_result` gets its RESULT.

        Raises PeerLost, or what else broke the chain. The caller keeps to `window` batches in flight. No
        await lies between the call and the lock of the link, so frames leave in the order of the calls.
        """
        self.check()
        sequence = BatchSequence(self._next_sequence)
        self._next_sequence = (self._next_sequence + 1) % 2**32
        self._waiting[sequence] = (slices, on_result)
        await self._send(Forward(epoch=self.epoch, sequence=sequence, slices=slices))

    async def send_in_band(self, frame: InBand) -> None:
        """CANCEL, CLOSE, COMPACT, FORK: in order with the batches, no window slot, no answer."""
        self.check()
        await self._send(frame)

    def check(self) -> None:
        """Raises the failure that ended the chain, if one did."""
        if self.failure is not None:
            raise self.failure

    def lose(self, stage: Stage, failure: FleetError, cause: Cause, *, heard: float | None = None) -> None:
        """End the chain because of one stage. `heard` is the last sign of life of a silent one."""
        if self.failure is not None:
            return
        stage.state, stage.detail = StageState.LOST, failure.message
        now = trio.current_time()
        began = heard if heard is not None else self.suspect()
        self.loss = Loss(stage.index, str(stage.address), cause, began, now)
        self.fail(failure)

    def suspect(self) -> float:
        """Note that something broke; returns when the first thing did."""
        if self.suspected is None:
            self.suspected = trio.current_time()
        return self.suspected

    def fail(self, failure: FleetError) -> None:
        """End the chain: the first failure is the cause, everybody who waits learns of it."""
        if self.failure is not None:
            return
        self.failure = failure
        self._failed.set()
        self._waiting.clear()
        self.on_failure()

    async def wait_failed(self) -> None:
        await self._failed.wait()

    async def _send(self, frame: Forward | InBand) -> None:
        link = self._upstream
        assert link is not None
        # A half-sent frame would break the link for all sessions: finish it whoever is cancelled.
        try:
            if not link.send_nowait(frame):
                await link.send(frame, shielded=True)
            elif link.unfinished:
                with trio.CancelScope(shield=True):
                    await link.flush()
        except (PeerLost, ProtocolError) as failure:
            self.suspect()
            with trio.move_on_after(GRACE):
                await self.wait_failed()
            self.lose(self.stages[0], failure, Cause.LINK)
            self.check()

    def start(self, upstream: Link, window: int) -> None:
        """Begin to serve: all stages are ready, the data link into the first stage is attached."""
        self._upstream = upstream
        self.window = window

    async def hang_up(self) -> None:
        """After a failure: nobody is to wait any longer for a socket that takes nothing."""
        if self._upstream is not None:
            with trio.CancelScope(shield=True):
                await self._upstream.aclose()

    def deliver(self, result: Result) -> None:
        """Raises RemoteProtocolError for a RESULT that does not fit its batch."""
        waiting = self._waiting.pop(result.sequence, None) if result.epoch == self.epoch else None
        if waiting is None:
            self.dropped += 1
            return
        self.results += 1
        slices, on_result = waiting
        check_result(result, slices, stages=len(self.stages), vocabulary=self._vocabulary)
        on_result(result)


def check_result(result: Result, slices: tuple[Slice, ...], *, stages: int, vocabulary: int) -> None:
    """Whether a RESULT can be the one of `slices`. Raises RemoteProtocolError, in numbers."""
    if len(result.results) != len(slices) or len(result.timings) != stages:
        raise RemoteProtocolError(
            f"a RESULT of {len(result.results)} slices and {len(result.timings)} stages came for a batch of "
            f"{len(slices)} slices through {stages} stages"
        )
    for timing in result.timings:
        if len(timing.cells) != len(slices):
            raise RemoteProtocolError("a RESULT does not count the cells of each slice")
    for one, asked in zip(result.results, slices, strict=True):
        if one.session != asked.session:
            raise RemoteProtocolError(f"a RESULT is of session {one.session}, not {asked.session}")
        if one.status in UNTOUCHED:
            continue
        if (one.status is ResultStatus.DRAWN) is not (asked.draw is not None):
            raise RemoteProtocolError("a RESULT draws where nothing was asked for, or does not where it was")
        if one.accepted > asked.drafts:
            raise RemoteProtocolError(f"a RESULT accepts {one.accepted} of {asked.drafts} drafts")
        if vocabulary and one.token >= vocabulary:
            raise RemoteProtocolError(f"a RESULT draws token {one.token}, the ids end at {vocabulary - 1}")
