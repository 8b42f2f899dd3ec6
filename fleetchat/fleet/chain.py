"""A chain: its links, and batches on their way through it.

The coordinator dials every stage (a control link each), the data link into the first stage and the
return link out of the last. RESULTs are read by their own task and find who waits by their sequence; a
broken link ends the chain for everybody at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from fleetchat.errors import FleetError, PeerLost, ProtocolError
from fleetchat.fleet.recorder import Samples, StageRecord
from fleetchat.fleet.telemetry import StageState
from fleetchat.ids import Address, BatchSequence, ChainId, Epoch
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Forward, InBand, Ready, Result, Slice, Stats


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

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"stage {self.index} at {self.address}"


OnResult = Callable[[Result], None]


class Chain:
    """Use `open_chain`. All calls come from the trio thread."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages
        self.identity = ChainId(secrets.token_hex(16))
        self.epoch = Epoch(1)
        self.return_network_ms = Samples()
        self.failure: FleetError | None = None
        self.dropped = 0
        self._failed = trio.Event()
        self._waiting: dict[int, OnResult] = {}
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
        self._waiting[sequence] = on_result
        await self._send(Forward(epoch=self.epoch, sequence=sequence, slices=slices))

    async def send_in_band(self, frame: InBand) -> None:
        """CANCEL, CLOSE, COMPACT, FORK: in order with the batches, no window slot, no answer."""
        self.check()
        await self._send(frame)

    def check(self) -> None:
        """Raises the failure that ended the chain, if one did."""
        if self.failure is not None:
            raise self.failure

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
        assert self._upstream is not None
        # A half-sent frame would break the link for all sessions: finish it whoever is cancelled.
        try:
            await self._upstream.send(frame, shielded=True)
        except (PeerLost, ProtocolError) as failure:
            self.fail(failure)
            raise

    def start(self, upstream: Link, window: int) -> None:
        """Begin to serve: all stages are ready, the data link into the first stage is attached."""
        self._upstream = upstream
        self.window = window

    def deliver(self, result: Result) -> None:
        on_result = self._waiting.pop(result.sequence, None) if result.epoch == self.epoch else None
        if on_result is None:
            self.dropped += 1
            return
        now = trio.current_time()
        for stage, timing in zip(self.stages, result.timings, strict=False):
            stage.record.add_batch(now, queue_us=timing.queue_us, compute_us=timing.compute_us)
        on_result(result)
