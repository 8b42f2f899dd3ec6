"""What a round costs: the traversal by its rows, and the drafting (pure). Seconds throughout.

One object serves all sessions of a chain.
"""

from __future__ import annotations

from bisect import bisect_left

from fleetchat.fleet.draft.interface import DraftSource, Proposal

ROW_SHARE = 0.08  # a further row, in traversals of one row: expected before two row counts were measured
LEVEL_RATE = 0.15  # how fast all row counts follow a change, such as a longer context or a busier machine
SAMPLES = 32  # of one row count that its mean remembers
OUTLIER = 4.0  # times more or less than expected is taken for that much
DRAFT_SHARE = 0.1  # a token of a draft model, in traversals of one row: expected before one was measured
FED_SHARE = 0.12  # a row that a draft model feeds beside others, in tokens that it drafts
DRAFT_RATE = 0.2
PREFILL = 64  # rows that a draft model has to catch up with: that round says little about drafting


class TraversalCosts:
    """The time of a traversal by its rows: one level times a shape that never falls.

    The level follows every measurement, so row counts that are seldom tried stay comparable; the shape
    holds the mean of each row count that was tried, is made monotone (pool adjacent violators),
    and is linear between them and beyond.
    """

    def __init__(self) -> None:
        self._level = 0.0  # seconds; 0 = nothing was measured
        self._means: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._knots: list[tuple[int, float]] = []

    def record(self, rows: int, seconds: float) -> None:
        """One decode or verify traversal; those with a prefill chunk in them are of no use here."""
        if seconds <= 0:
            return
        if not self._level:
            self._level = seconds / (1 + ROW_SHARE * (rows - 1))
        expected = self.seconds(rows)
        seconds = min(max(seconds, expected / OUTLIER), expected * OUTLIER)
        self._level *= (seconds / expected) ** LEVEL_RATE
        count = self._counts[rows] = min(self._counts.get(rows, 0) + 1, SAMPLES)
        mean = self._means.get(rows, 0.0)
        self._means[rows] = mean + (seconds / self._level - mean) / count
        self._knots = _monotone(sorted(self._means.items()), self._counts)

    def seconds(self, rows: int) -> float:
        """Expected time of a traversal with `rows` rows; in units of one row's when nothing was measured."""
        return (self._level or 1.0) * self._shape(rows)

    def _shape(self, rows: int) -> float:
        knots = self._knots
        if not knots:
            return 1 + ROW_SHARE * (rows - 1)
        place = bisect_left(knots, (rows, 0.0))
        if 0 < place < len(knots):
            (left, low), (right, high) = knots[place - 1], knots[place]
            return low + (high - low) * (rows - left) / (right - left)
        known, value = knots[0] if place == 0 else knots[-1]
        return max(value / 4, value + self._slope() * (rows - known))

    def _slope(self) -> float:
        (left, low), (right, high) = self._knots[0], self._knots[-1]
        return (
            (high - low) / (right - left) if right > left else ROW_SHARE * low / (1 + ROW_SHARE * (left - 1))
        )


def _monotone(means: list[tuple[int, float]], counts: dict[int, int]) -> list[tuple[int, float]]:
    """The nearest values, weighted by `counts`, that never fall."""
    blocks: list[tuple[float, float, list[int]]] = []  # weight, value, row counts
    for rows, value in means:
        weight, members = float(counts[rows]), [rows]
        while blocks and blocks[-1][1] > value:
            other_weight, other_value, others = blocks.pop()
            value = (weight * value + other_weight * other_value) / (weight + other_weight)
            weight, members = weight + other_weight, others + members
        blocks.append((weight, value, members))
    return [(rows, value) for _, value, members in blocks for rows in members]


class RoundCosts:
    """Traversals, and the seconds per token of each source of drafts."""

    def __init__(self) -> None:
        self.traversal = TraversalCosts()
        self._per_token: dict[DraftSource, float] = {}
        self._rough: set[DraftSource] = set()

    def record_draft(self, proposal: Proposal, seconds: float) -> None:
        """`seconds` that the proposal took. Looking up is free."""
        source = proposal.source
        if source is not DraftSource.MODEL:
            return
        rough = proposal.caught_up > PREFILL
        sample = seconds / _tokens_worth(len(proposal.ids), proposal.caught_up)
        known = self._per_token.get(source)
        if known is None or (source in self._rough and not rough):
            self._per_token[source] = sample
            self._rough = self._rough | {source} if rough else self._rough - {source}
        elif not rough:
            sample = min(sample, OUTLIER * known)
            self._per_token[source] = known + DRAFT_RATE * (sample - known)

    def draft_seconds(self, source: DraftSource, count: int, lag: int) -> float:
        """Of `count` drafts, when the source has to feed `lag` ids first."""
        if source is not DraftSource.MODEL or count == 0:
            return 0.0
        per_token = self._per_token.get(source, DRAFT_SHARE * self.traversal.seconds(1))
        return per_token * _tokens_worth(count, lag)


def _tokens_worth(count: int, fed: int) -> float:
    """Work of feeding `fed` rows at once and drafting `count` tokens, in single tokens."""
    return count + FED_SHARE * max(0, fed - 1)
