"""Paired measurements: members alternately in one run, since the machine drifts (no clock in here).

The ratio of a measurement is the median over pairs, never the ratio of two medians: what drifts
slower than a pair takes cancels out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: at least `pairs` pairs, each member at least `seconds`."""

    pairs: int
    seconds: float
    quick: bool = False


FULL = Effort(pairs=9, seconds=5.0)
QUICK = Effort(pairs=3, seconds=2.0, quick=True)

Measure = Callable[[int], Awaitable[float]]  # the number of the pair -> what was measured in it


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


async def alternate(
    members: Mapping[str, Measure], pairs: int, on_pair: Callable[[int], None]
) -> dict[str, list[float]]:
    """Measure A B C, C B A, A B C …: the order changes, so that no member always goes first."""
    measured: dict[str, list[float]] = {name: [] for name in members}
    for pair in range(pairs):
        for name in list(members) if pair % 2 == 0 else reversed(list(members)):
            measured[name].append(await members[name](pair))
        on_pair(pair)
    return measured


def fastest(measured: Mapping[str, Sequence[float]]) -> str:
    """The member with the highest median."""
    return max(measured, key=lambda name: median(measured[name]))
