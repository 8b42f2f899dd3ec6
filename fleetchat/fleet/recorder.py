"""Ring buffers of what the chain reports, turned into snapshots (pure: the caller gives the time)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, deque
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


class Rates:
    """Tokens a second of each session, over the same last `window` seconds: so they add up to that of all.

    All together are measured from the first token in the window to the last; each has its share of them.
    """

    def __init__(self, window: float = 2.0) -> None:
        self._window = window
        self._tokens: deque[tuple[float, int]] = deque(maxlen=KEPT_SAMPLES)  # (when, session)

    def add(self, now: float, session: int) -> None:
        self._tokens.append((now, session))

    def forget(self, session: int) -> None:
        """Its reply is over: what it wrote is no longer part of what is being written."""
        kept = (one for one in self._tokens if one[1] != session)
        self._tokens = deque(kept, maxlen=KEPT_SAMPLES)

    def clear(self) -> None:
        """The chain is lost: nothing is being written."""
        self._tokens.clear()

    def per_second(self, now: float) -> dict[int, float]:
        """By session; one without a token in the window is not in it."""
        while self._tokens and self._tokens[0][0] < now - self._window:
            self._tokens.popleft()
        recent = [one for one in self._tokens if one[0] >= now - self._window]  # rounds are told out of order
        times = [when for when, _ in recent]
        span = max(times) - min(times) if times else 0.0
        each = (len(recent) - 1) / len(recent) / span if span > 0 else 0.0  # of one token
        return {session: each * tokens for session, tokens in Counter(one for _, one in recent).items()}


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
