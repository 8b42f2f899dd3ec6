"""Every layer exactly once and in order, and no better split exists."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.cutter.partition import check_ranges, partition, ranges_from_counts, stage_costs
from fleetchat.errors import CutRefused

COSTS = st.lists(st.integers(0, 50), min_size=1, max_size=9)


def least_largest(layer_costs: list[int], head: int, embedding: int, stages: int) -> int:
    """The best possible largest stage cost, by trying every split."""
    layers = len(layer_costs)
    splits = ([0, *ends, layers] for ends in combinations(range(1, layers), stages - 1))
    return min(
        max(stage_costs([(a, b - 1) for a, b in pairwise(split)], layer_costs, head, embedding))
        for split in splits
    )


@settings(max_examples=150)
@given(COSTS, st.integers(0, 100), st.integers(0, 100), st.data())
def test_it_is_the_best_split_and_has_every_layer_once(
    layer_costs: list[int], head: int, embedding: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, len(layer_costs)))
    ranges = partition(layer_costs, head, embedding, stages)
    assert len(ranges) == stages
    assert [layer for first, last in ranges for layer in range(first, last + 1)] == [*range(len(layer_costs))]
    assert all(first <= last for first, last in ranges)
    largest = max(stage_costs(ranges, layer_costs, head, embedding))
    assert largest == least_largest(layer_costs, head, embedding, stages)


@pytest.mark.parametrize("layers", range(1, 41))
def test_all_sizes_are_covered(layers: int) -> None:
    for stages in range(1, layers + 1):
        ranges = partition([1] * layers, 0, 0, stages)
        assert check_ranges(ranges, layers) == ranges
        assert len(ranges) == stages
        assert max(last - first + 1 for first, last in ranges) == -(-layers // stages)


def test_the_head_is_counted_on_the_last_stage() -> None:
    assert partition([1] * 30, 6, 0, 2) == ((0, 17), (18, 29))
    assert partition([1] * 30, 0, 0, 2) == ((0, 14), (15, 29))


def test_the_embedding_is_counted_on_the_first_stage() -> None:
    assert partition([1] * 10, 0, 4, 2) == ((0, 2), (3, 9))


@pytest.mark.parametrize(
    ("layers", "stages", "message"),
    [(3, 4, "cannot cut 3 layers into 4 stages"), (3, 0, "cannot cut into 0 stages")],
)
def test_impossible_stage_counts_are_refused(layers: int, stages: int, message: str) -> None:
    with pytest.raises(CutRefused) as refused:
        partition([1] * layers, 1, 0, stages)
    assert refused.value.message == message
    assert refused.value.hint is not None


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([(0, 1), (3, 3)], "stage 1 starts at layer 3, but layer 2 comes next"),
        ([(0, 1), (1, 3)], "stage 1 starts at layer 1, but layer 2 comes next"),
        ([(0, 2), (3, 2)], "stage 1 has no layers: it goes from 3 to 2"),
        ([(0, 2)], "the stages have 3 layers, but the model has 4"),
        ([(0, 4)], "the stages have 5 layers, but the model has 4"),
        ([], "the stages have 0 layers, but the model has 4"),
    ],
)
def test_ranges_with_gaps_overlaps_or_wrong_ends_are_refused(
    ranges: list[tuple[int, int]], message: str
) -> None:
    with pytest.raises(CutRefused) as refused:
        check_ranges(ranges, 4)
    assert refused.value.message == message


def test_counts_become_ranges() -> None:
    assert ranges_from_counts((18, 12), 30) == ((0, 17), (18, 29))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((18, 11), "[18, 11] are 29 layers, but the model has 30"),
        ((30, 0), "every stage needs a layer: [30, 0]"),
        ((), "every stage needs a layer: []"),
    ],
)
def test_wrong_counts_are_refused(counts: tuple[int, ...], message: str) -> None:
    with pytest.raises(CutRefused) as refused:
        ranges_from_counts(counts, 30)
    assert refused.value.message == message
