"""Paired measurements: A and B alternately in one run, since the machine drifts (pure but for the clock).

The ratio of a measurement is the median over pairs, never the ratio of two medians: what drifts
slower than a pair takes cancels out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: at least `pairs` pairs, each member at least `seconds`."""

    pairs: int
    seconds: float


FULL = Effort(pairs=9, seconds=5.0)
QUICK = Effort(pairs=3, seconds=2.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a report, with the fields of `bench --json`.

    `value` and `baseline` are medians in `unit`; `ratio` is the median over pairs of value / baseline.
    Rows without a baseline have None there.
    """

    id: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    ratio_min: float | None = None
    ratio_max: float | None = None
    pairs: int = 0


def paired_row(identity: str, unit: str, values: Sequence[float], baselines: Sequence[float]) -> Row:
    """Medians of the two sides, and median and range of the ratios pair by pair.

    Raises ValueError when there is no pair or the sides differ in length.
    """
    if not values or len(values) != len(baselines):
        raise ValueError(f"{identity}: {len(values)} values and {len(baselines)} baselines make no pairs")
    ratios = [value / baseline for value, baseline in zip(values, baselines, strict=True)]
    return Row(
        id=identity,
        value=median(values),
        unit=unit,
        baseline=median(baselines),
        ratio=median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        pairs=len(ratios),
    )


def alternate(
    pairs: int,
    ours: Callable[[int], float],
    theirs: Callable[[int], float],
    *,
    on_pair: Callable[[int], None],
) -> tuple[list[float], list[float]]:
    """Measure A B, B A, A B …: the order within a pair changes, so that neither side always goes first."""
    values: list[float] = []
    baselines: list[float] = []
    for pair in range(pairs):
        if pair % 2 == 0:
            values.append(ours(pair))
            baselines.append(theirs(pair))
        else:
            baselines.append(theirs(pair))
            values.append(ours(pair))
        on_pair(pair)
    return values, baselines
