"""Ring buffers of what the chain reports, turned into snapshots (pure: the caller gives the time)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from fleetchat.fleet.telemetry import Percentiles

KEPT_SECONDS = 60.0
KEPT_SAMPLES = 8192  # a minute at 130 batches a second


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
    """Values of the last minute, at most `KEPT_SAMPLES`."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=KEPT_SAMPLES)

    def add(self, now: float, value: float) -> None:
        self._values.append((now, value))

    @property
    def latest(self) -> float | None:
        """The last value; None when there is none."""
        return self._values[-1][1] if self._values else None

    def percentiles(self, now: float) -> Percentiles:
        return percentiles(value for when, value in self._values if when >= now - KEPT_SECONDS)


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
