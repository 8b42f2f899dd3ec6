"""Traversal times by rows from noisy samples, and what drafting takes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetchat.fleet.draft.costs import PREFILL, RoundCosts, TraversalCosts
from fleetchat.fleet.draft.interface import DraftKey, DraftSource, Guess, Proposal
from tests.fakes.simulated_speculation import traversal


def measured(samples: list[tuple[int, float]]) -> TraversalCosts:
    costs = TraversalCosts()
    for rows, seconds in samples:
        costs.record(rows, seconds)
    return costs


def drafted(source: DraftSource, count: int, caught_up: int = 1) -> Proposal:
    ids = (1,) * count
    return Proposal(ids, (Guess(DraftKey(source), ids),), caught_up)


def test_before_any_sample_a_row_costs_a_little() -> None:
    costs = TraversalCosts()
    assert costs.seconds(1) == 1.0
    assert 1.3 < costs.seconds(5) < 1.4


def test_one_row_count_sets_the_level_for_all() -> None:
    costs = measured([(1, 0.02)] * 5)
    assert costs.seconds(1) == pytest.approx(0.02)
    assert costs.seconds(6) == pytest.approx(0.028)
    other = measured([(6, 0.028)] * 5)
    assert other.seconds(1) == pytest.approx(0.02)


def test_between_and_beyond_the_samples_it_is_linear() -> None:
    costs = measured([(2, 0.02), (6, 0.04)] * 20)
    assert costs.seconds(4) == pytest.approx(0.03, rel=0.05)
    assert costs.seconds(8) == pytest.approx(0.05, rel=0.05)
    assert costs.seconds(1) == pytest.approx(0.015, rel=0.05)


def test_noise_is_averaged() -> None:
    chance = random.Random(0)
    costs = measured(
        [(rows, traversal(rows) * chance.uniform(0.85, 1.15)) for _ in range(60) for rows in (1, 2, 5, 9)]
    )
    for rows in range(1, 10):
        assert costs.seconds(rows) == pytest.approx(traversal(rows), rel=0.1)


def test_an_outlier_counts_little() -> None:
    costs = measured([(1, 0.02)] * 20)
    costs.record(1, 5.0)
    assert costs.seconds(1) < 0.03


def test_all_row_counts_follow_a_slower_machine() -> None:
    costs = measured([(1, 0.02), (5, 0.03)] * 20)
    for _ in range(60):
        costs.record(1, 0.04)
    assert costs.seconds(1) == pytest.approx(0.04, rel=0.05)
    assert costs.seconds(5) > 0.05


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(1e-4, 1.0)), min_size=1, max_size=40))
def test_more_rows_never_cost_less(samples: list[tuple[int, float]]) -> None:
    costs = measured(samples)
    seconds = [costs.seconds(rows) for rows in range(1, 25)]
    assert seconds[0] > 0
    assert all(later >= sooner * (1 - 1e-9) for sooner, later in pairwise(seconds))


def test_no_time_is_no_sample() -> None:
    costs = measured([(1, 0.0), (3, -1.0)])
    assert costs.seconds(1) == 1.0


def test_looking_up_is_free() -> None:
    costs = RoundCosts()
    costs.record_draft(drafted(DraftSource.NGRAM, 4), 9.0)
    assert costs.draft_seconds(DraftSource.NGRAM, 4, 50) == 0.0


def test_a_draft_model_costs_by_the_token() -> None:
    costs = RoundCosts()
    for count in (1, 3, 2):
        costs.record_draft(drafted(DraftSource.MODEL, count), 0.002 * count)
    assert costs.draft_seconds(DraftSource.MODEL, 5, 1) == pytest.approx(0.010)
    assert costs.draft_seconds(DraftSource.MODEL, 0, 1) == 0.0


def test_rows_that_have_to_be_fed_cost_too() -> None:
    costs = RoundCosts()
    costs.record_draft(drafted(DraftSource.MODEL, 1), 0.002)
    assert costs.draft_seconds(DraftSource.MODEL, 1, 26) == pytest.approx(0.002 * 4)


def test_a_prefill_says_little_and_is_replaced_by_the_next_round() -> None:
    costs = RoundCosts()
    costs.record_draft(drafted(DraftSource.MODEL, 1, PREFILL + 1000), 0.9)
    costs.record_draft(drafted(DraftSource.MODEL, 1), 0.002)
    assert costs.draft_seconds(DraftSource.MODEL, 1, 1) == pytest.approx(0.002)
    costs.record_draft(drafted(DraftSource.MODEL, 1, PREFILL + 1000), 0.9)
    assert costs.draft_seconds(DraftSource.MODEL, 1, 1) == pytest.approx(0.002)
