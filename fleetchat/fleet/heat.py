"""Is a stage slower than it was? Its batches are compared with its own fastest on like work (pure).

What a batch of decode and verify slices takes depends on its rows, its slices, the cells that attention
reads, and on whether the stages of one machine compute at the same time. Batches with the same rows and
slices, alone in the chain or not, are compared; the cells between two of them may explain MARGIN times what
cells were seen to cost while all was well. Prefill is not judged: no two prompts are alike. The baseline of a
kind of work is the lowest median of BLOCK batches in a row, so that one lucky batch sets no standard. What
takes far longer than expected when it is first seen sets none either.

The factor is the median, over the compute time of the last WINDOW seconds, of a batch's time / what it should
have taken. Half of the time, not half of the batches: slow batches are fewer. So a short hiccup is not heat,
and a busy stage that becomes twice as slow is told after some 20 s.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from statistics import median

BLOCK = 16  # batches
WINDOW = 40.0  # seconds
GROWTH = 0.25 / 1000  # of the time, a cell more, as long as it is not known better
LEAST_GROWTH, MOST_GROWTH = 0.1 / 1000, 0.6 / 1000  # a small model's verify slices were seen to cost 0.5
MARGIN = 1.2
LEARNT = 1.35  # times what was expected: slower work than that is throttled already, it seems
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
        if expected is not None and taken > LEARNT * expected:
            return
        if before is None or taken < before[1]:
            self._fastest[middle // BUCKET] = (middle, taken)
            self._growth = self._seen_growth()

    def expected(self, cells: int) -> float | None:
        """What such a batch takes at most when all is well; None while there is no baseline."""
        times = (time * (1 + self._growth * max(0, cells - count)) for count, time in self._fastest.values())
        return min(times, default=None)

    def _seen_growth(self) -> float:
        """Of the time with the fewest cells, a cell more. More cells in less time: that was noise."""
        (fewest, least), *more = self._envelope()
        seen = [(time / least - 1) / (count - fewest) for count, time in more if count - fewest >= SPAN]
        return min(max(MARGIN * median(seen), LEAST_GROWTH), MOST_GROWTH) if seen else GROWTH

    def _envelope(self) -> list[tuple[int, float]]:
        """The (cells, ms) that none with as many cells or more undercuts, by cells."""
        kept: list[tuple[int, float]] = []
        for count, time in sorted(self._fastest.values(), reverse=True):
            if not kept or time < kept[-1][1]:
                kept.append((count, time))
        return kept[::-1]


@dataclass(frozen=True, slots=True)
class Kind:
    """Batches of one kind are compared. `crowded`: another batch was in the chain at the same time."""

    rows: int
    slices: int
    crowded: bool


class Heat:
    """Of one stage."""

    def __init__(self) -> None:
        self._baselines: dict[Kind, Baseline] = {}
        self._ratios: deque[tuple[float, float, float]] = deque()  # when, how many times slower, milliseconds
        self._ordered: list[
            tuple[float, float]
        ] = []  # the same by ratio: thousands, looked at 4 times a second
        self.throttling = False

    def note(self, now: float, kind: Kind, *, cells: int, milliseconds: float) -> None:
        """A batch without prefill was computed."""
        baseline = self._baselines.setdefault(kind, Baseline())
        expected = baseline.expected(cells)
        if expected:
            ratio = milliseconds / expected
            self._ratios.append((now, ratio, milliseconds))
            insort(self._ordered, (ratio, milliseconds))
        baseline.add(cells, milliseconds)

    def factor(self, now: float) -> float | None:
        """How many times slower than its own best it was over the window; None = too little work."""
        while self._ratios and self._ratios[0][0] < now - WINDOW:
            _, ratio, milliseconds = self._ratios.popleft()
            del self._ordered[bisect_left(self._ordered, (ratio, milliseconds))]
        if len(self._ratios) < LEAST_BATCHES or self._ratios[-1][0] - self._ratios[0][0] < LEAST_SECONDS:
            return None
        half = sum([milliseconds for _, milliseconds in self._ordered]) / 2
        for ratio, milliseconds in self._ordered:
            half -= milliseconds
            if half <= 0:
                return ratio
        return self._ordered[-1][0]

    def judge(self, now: float) -> float | None:
        """The factor; `throttling` follows it, and lets go later than it begins."""
        factor = self.factor(now)
        self.throttling = factor is not None and factor >= (COOLED if self.throttling else THROTTLED)
        return factor
