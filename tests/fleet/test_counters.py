"""What speculation did, in numbers."""

from __future__ import annotations

import pytest

from fleetchat.fleet.counters import POINTS, REMEMBERED, Counters


def counted(*rounds: tuple[int, int]) -> Counters:
    counters = Counters()
    for drafted, accepted in rounds:
        counters.count_round(drafted, accepted, f"{drafted} drafts")
    return counters


def test_rounds_add_up() -> None:
    counters = counted((0, 0), (3, 2), (3, 0), (1, 1))
    assert (counters.rounds, counters.drafted, counters.accepted) == (4, 7, 3)
    assert counters.by_depth == [1, 1, 0, 2]
    assert (counters.depth, counters.reason) == (1, "1 drafts")


def test_only_slices_that_hide_cells_are_rollbacks() -> None:
    counters = Counters()
    for masked in (0, 3, 0, 1):
        counters.count_rollback(masked)
    assert (counters.rollbacks, counters.masked) == (2, 4)


def test_recent_acceptance_has_the_newest_rounds_last_and_forgets_the_old() -> None:
    assert counted((2, 0), (0, 0), (2, 1), (2, 2)).snapshot("x").recent == (0.0, 0.5, 1.0)
    long = counted(*[(4, 0)] * 500, *[(4, 4)] * REMEMBERED).snapshot("x").recent
    assert long == (1.0,) * POINTS


@pytest.mark.parametrize("rounds", range(0, 200, 7))
def test_the_line_of_recent_acceptance_is_short(rounds: int) -> None:
    recent = counted(*[(2, 1)] * rounds).snapshot("x").recent
    assert len(recent) <= POINTS
    assert set(recent) <= {0.5}


def test_histograms_count_rounds_by_what_was_drafted_and_accepted() -> None:
    snapshot = counted((0, 0), (3, 2), (3, 0), (1, 1), (3, 3)).snapshot("x")
    assert snapshot.by_depth == (1, 1, 0, 3)
    assert snapshot.by_accepted == (1, 1, 1, 1)
    assert sum(snapshot.by_depth) == snapshot.rounds
    assert sum(n * rounds for n, rounds in enumerate(snapshot.by_accepted)) == snapshot.accepted
