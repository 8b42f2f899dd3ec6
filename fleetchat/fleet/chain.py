"""A chain: its links, and batches on their way through it.

The coordinator dials every stage (a control link each), the data link into the first stage and the
return link out of the last. RESULTs are read by their own task and find their waiter by sequence; a
broken link fails every waiter at once.
"""

from __future__ import annotations

import secrets
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


@dataclass(slots=True)
class Waiter:
    """A batch in flight. `woken` is set by its RESULT, by the chain's failure, or by who gives it up."""

    woken: trio.Event = field(default_factory=trio.Event)
    result: Result | None = None


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
        self._waiters: dict[int, Waiter] = {}
        self._next_sequence = 0
        self._upstream: Link | None = None
        self._window = trio.Semaphore(1)

    @property
    def cells(self) -> int:
        """The least that any stage granted."""
        return min(stage.ready.cells for stage in self.stages if stage.ready)

    async def send_batch(self, slices: tuple[Slice, ...]) -> Waiter:
        """Wait for room in the window, hand one batch to the socket; returns who waits for its RESULT.

        Raises PeerLost (or what else broke the chain). The batch keeps its place in the window until
        its RESULT arrives, also when nobody waits for it any more.
        """
        await self._window.acquire()
        self.check()
        sequence = BatchSequence(self._next_sequence)
        self._next_sequence = (self._next_sequence + 1) % 2**32
        waiter = self._waiters[sequence] = Waiter()
        await self._send(Forward(epoch=self.epoch, sequence=sequence, slices=slices))
        return waiter

    async def wait_result(self, waiter: Waiter) -> Result | None:
        """The RESULT of a batch; None when the waiter was woken before. Raises what broke the chain."""
        await waiter.woken.wait()
        if waiter.result is None:
            self.check()
        return waiter.result

    async def send_in_band(self, frame: InBand) -> None:
        """CANCEL, CLOSE, COMPACT, FORK: in order with the batches, no window slot, no answer."""
        self.check()
        await self._send(frame)

    def check(self) -> None:
        """Raises the failure that ended the chain, if one did."""
        if self.failure is not None:
            raise self.failure

    def fail(self, failure: FleetError) -> None:
        """End the chain: the first failure is the cause, every waiter learns of it."""
        if self.failure is not None:
            return
        self.failure = failure
        self._failed.set()
        for waiter in self._waiters.values():
            waiter.woken.set()
        self._waiters.clear()
        for _ in range(1024):  # whoever waits for the window wakes up and sees the failure
            if self._window.statistics().tasks_waiting == 0:
                break
            self._window.release()

    async def wait_failed(self) -> None:
        await self._failed.wait()

    async def _send(self, frame: Forward | InBand) -> None:
        assert self._upstream is not None
        # A half-sent frame would break the link for all sessions: finish it whoever is cancelled.
        with trio.CancelScope(shield=True):
            try:
                await self._upstream.send(frame)
            except (PeerLost, ProtocolError) as failure:
                self.fail(failure)
                raise

    def start(self, upstream: Link, window: int) -> None:
        """Begin to serve: all stages are ready, the data link into the first stage is attached."""
        self._upstream = upstream
        self._window = trio.Semaphore(window)

    def deliver(self, result: Result) -> None:
        waiter = self._waiters.pop(result.sequence, None) if result.epoch == self.epoch else None
        if waiter is None:
            self.dropped += 1
            return
        now = trio.current_time()
        for stage, timing in zip(self.stages, result.timings, strict=False):
            stage.record.add_batch(now, queue_us=timing.queue_us, compute_us=timing.compute_us)
        waiter.result = result
        waiter.woken.set()
        self._window.release()
