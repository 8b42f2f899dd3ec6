"""Ring buffers of what the chain reports, turned into snapshots (pure: the caller gives the time)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from statistics import median

from fleetchat.fleet.telemetry import History, Percentiles

KEPT_SECONDS = 60.0
KEPT_SAMPLES = 8192  # a minute at 130 batches a second
HISTORY_STEPS = 12
HISTORY_STEP = KEPT_SECONDS / HISTORY_STEPS  # seconds


def percentiles(values: Iterable[float]) -> Percentiles:
    """Nearest-rank p50 and p95."""
    ordered = sorted(values)
    if not ordered:
        return Percentiles()
    return Percentiles(nearest_rank(ordered, 0.50), nearest_rank(ordered, 0.95), len(ordered))


def nearest_rank(ordered: list[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Samples:
    """Values of the last minute, at most `KEPT_SAMPLES`. What is added is sorted when somebody asks."""

    def __init__(self) -> None:
        self._added: deque[tuple[float, float]] = deque(maxlen=KEPT_SAMPLES)
        self._values: deque[tuple[float, float]] = deque()
        self._ordered: list[float] = []
        self._medians: deque[tuple[int, float]] = deque(maxlen=HISTORY_STEPS)
        self._step: list[float] = []  # values of the step that is not over yet
        self._step_number = 0
        self._latest: float | None = None

    def add(self, now: float, value: float) -> None:
        self._added.append((now, value))
        self._latest = value

    @property
    def latest(self) -> float | None:
        """The last value; None when there is none."""
        return self._latest

    def percentiles(self, now: float) -> Percentiles:
        """Of the values since a minute before `now`; ask with times that do not go back."""
        self._take_in(now)
        ordered = self._ordered
        if not ordered:
            return Percentiles()
        return Percentiles(nearest_rank(ordered, 0.50), nearest_rank(ordered, 0.95), len(ordered))

    def history(self, now: float) -> History:
        """The median of each of the last HISTORY_STEPS steps of the clock, that of `now` last."""
        self._take_in(now)
        medians = dict(self._medians)
        if self._step:
            medians[self._step_number] = median(self._step)
        last = int(now // HISTORY_STEP)
        return tuple(medians.get(step) for step in range(last - HISTORY_STEPS + 1, last + 1))

    def _take_in(self, now: float) -> None:
        while self._added:
            when, value = self._added.popleft()
            self._values.append((when, value))
            insort(self._ordered, value)
            if when // HISTORY_STEP != self._step_number:
                self._end_step()
                self._step_number = int(when // HISTORY_STEP)
            self._step.append(value)
        while self._values and (self._values[0][0] < now - KEPT_SECONDS or len(self._values) > KEPT_SAMPLES):
            _, value = self._values.popleft()
            del self._ordered[bisect_left(self._ordered, value)]

    def _end_step(self) -> None:
        if self._step:
            self._medians.append((self._step_number, median(self._step)))
            self._step = []


class Rate:
    """Events a second over the last `window` seconds, from the first event in it to the last."""

    def __init__(self, window: float = 2.0) -> None:
        self._window = window
        self._times: deque[float] = deque(maxlen=KEPT_SAMPLES)

    def add(self, now: float) -> None:
        self._times.append(now)

    def per_second(self, now: float) -> float:
        while self._times and self._times[0] < now - self._window:
            self._times.popleft()
        if len(self._times) < 2 or self._times[-1] <= self._times[0]:
            return 0.0
        return (len(self._times) - 1) / (self._times[-1] - self._times[0])


class StageRecord:
    """What one stage said of the batches it served."""

    def __init__(self) -> None:
        self.compute_ms = Samples()
        self.queue_ms = Samples()
        self.network_ms = Samples()
        self.cells_live = 0
        self.cells_dead = 0
        self.memory_resident = 0

    def add_batch(self, now: float, *, queue_us: int, compute_us: int) -> None:
        self.queue_ms.add(now, queue_us / 1000)
        self.compute_ms.add(now, compute_us / 1000)
