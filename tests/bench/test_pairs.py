"""Pairs: order, medians, the row of a report."""

from __future__ import annotations

from functools import partial

import pytest

from fleetchat.bench.pairs import Row, alternate, fastest, paired_row


def test_a_row_has_the_median_of_the_ratios_not_the_ratio_of_the_medians() -> None:
    row = paired_row("x", "tokens/s", [10.0, 40.0, 30.0], [10.0, 20.0, 60.0])
    assert row == Row("x", 30.0, "tokens/s", 20.0, 1.0, 0.5, 2.0, 3)


@pytest.mark.parametrize(("values", "baselines"), [([], []), ([1.0], []), ([1.0], [1.0, 2.0])])
def test_what_makes_no_pairs_is_refused(values: list[float], baselines: list[float]) -> None:
    with pytest.raises(ValueError, match="make no pairs"):
        paired_row("x", "s", values, baselines)


@pytest.mark.trio
async def test_members_take_turns_and_the_order_is_reversed_every_other_pair() -> None:
    calls: list[tuple[str, int]] = []

    async def measure(name: str, pair: int) -> float:
        calls.append((name, pair))
        return float(len(calls))

    pairs: list[int] = []
    measured = await alternate({name: partial(measure, name) for name in "abc"}, 2, pairs.append)
    assert calls == [("a", 0), ("b", 0), ("c", 0), ("c", 1), ("b", 1), ("a", 1)]
    assert measured == {"a": [1.0, 6.0], "b": [2.0, 5.0], "c": [3.0, 4.0]}
    assert pairs == [0, 1]


def test_the_fastest_has_the_highest_median() -> None:
    assert fastest({"steady": [5.0, 5.0, 5.0], "lucky once": [1.0, 9.0, 2.0]}) == "steady"
