"""Is a stage slower than it was? Its batches are compared with its own fastest on like work (pure).

What a batch of decode and verify slices takes depends on its rows, its slices and the cells that attention
reads. Batches with the same rows and slices are compared; the cells between two of them may explain GROWTH at
most, and no more than MARGIN times what they were seen to cost while all was well. Prefill is not judged: no
two prompts are alike. The baseline of a kind of work is the lowest median of BLOCK batches in a row, so that
one lucky batch sets no standard. What was slow when it was first seen sets none either.

The factor is the median, over the last WINDOW seconds, of a batch's time / what it should have taken. So a
short hiccup is not heat, and a stage that is twice as slow is told after some 30 s of work.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from statistics import median

BLOCK = 16  # batches
WINDOW = 40.0  # seconds: of a stage that is twice as slow, half the batches are slow after 27 s
GROWTH = 0.25 / 1000  # of the time, a cell more, as long as it is not known better
LEAST_GROWTH = 0.02 / 1000
MARGIN = 1.5
SPAN = 512  # cells between two baselines that tell the growth
BUCKET = 128  # cells: one baseline is kept for so many
LEAST_BATCHES = 24  # of a window, below which nothing is said
LEAST_SECONDS = 10.0  # that they must span
THROTTLED = 1.5  # from this factor on a stage is called slow,
COOLED = 1.25  # below this one no longer


class Baseline:
    """The fastest of one kind of work, by the cells that were read."""

    def __init__(self) -> None:
        self._block: list[tuple[int, float]] = []
        self._fastest: dict[int, tuple[int, float]] = {}  # bucket -> (cells, ms)
        self._growth = GROWTH

    def add(self, cells: int, milliseconds: float) -> None:
        self._block.append((cells, milliseconds))
        if len(self._block) < BLOCK:
            return
        middle = round(median(count for count, _ in self._block))
        taken = median(time for _, time in self._block)
        self._block.clear()
        expected, before = self.expected(middle), self._fastest.get(middle // BUCKET)
        if expected is not None and taken > COOLED * expected:
            return  # throttled already, it seems
        if before is None or taken < before[1]:
            self._fastest[middle // BUCKET] = (middle, taken)
            self._growth = self._seen_growth()

    def expected(self, cells: int) -> float | None:
        """What such a batch takes at most when all is well; None while there is no baseline."""
        times = (time * (1 + self._growth * max(0, cells - count)) for count, time in self._fastest.values())
        return min(times, default=None)

    def _seen_growth(self) -> float:
        """Of the time with the fewest cells, a cell more."""
        fewest, least = min(self._fastest.values())
        seen = [
            (time / least - 1) / (count - fewest)
            for count, time in self._fastest.values()
            if count - fewest >= SPAN
        ]
        return min(max(MARGIN * median(seen), LEAST_GROWTH), GROWTH) if seen else GROWTH


class Heat:
    """Of one stage."""

    def __init__(self) -> None:
        self._baselines: dict[tuple[int, int], Baseline] = {}
        self._ratios: deque[tuple[float, float]] = deque()
        self._ordered: list[float] = []  # the same ratios: thousands, looked at four times a second
        self.throttling = False

    def note(self, now: float, *, rows: int, slices: int, cells: int, milliseconds: float) -> None:
        """A batch without prefill was computed."""
        baseline = self._baselines.setdefault((rows, slices), Baseline())
        expected = baseline.expected(cells)
        if expected:
            self._ratios.append((now, milliseconds / expected))
            insort(self._ordered, milliseconds / expected)
        baseline.add(cells, milliseconds)

    def factor(self, now: float) -> float | None:
        """How many times slower than its own best it was over the window; None = too little work."""
        while self._ratios and self._ratios[0][0] < now - WINDOW:
            _, ratio = self._ratios.popleft()
            del self._ordered[bisect_left(self._ordered, ratio)]
        if len(self._ratios) < LEAST_BATCHES or self._ratios[-1][0] - self._ratios[0][0] < LEAST_SECONDS:
            return None
        middle = len(self._ordered) // 2
        return (self._ordered[middle] + self._ordered[~middle]) / 2

    def judge(self, now: float) -> float | None:
        """The factor; `throttling` follows it, and lets go later than it begins."""
        factor = self.factor(now)
        self.throttling = factor is not None and factor >= (COOLED if self.throttling else THROTTLED)
        return factor
