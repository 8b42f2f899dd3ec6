"""What `bench wan` calls its rows, and what it refuses."""

from __future__ import annotations

import pytest

from fleetchat.bench.pairs import FULL, QUICK
from fleetchat.bench.scale import Plan
from fleetchat.bench.wan import WanPlan, check_wan_plan, effort_for, row_name
from fleetchat.errors import InputError


@pytest.mark.parametrize(
    ("plan", "delay", "sessions", "name"),
    [
        (Plan(), 50.0, 4, "wan.50ms.4s.none.0"),
        (Plan(drafter="ngram"), 10.0, 1, "wan.10ms.1s.ngram.adaptive"),
        (Plan(drafter="ngram", depth=4), 2.5, 8, "wan.2.5ms.8s.ngram.4"),
    ],
)
def test_rows_are_named(plan: Plan, delay: float, sessions: int, name: str) -> None:
    assert row_name(plan, delay, sessions) == name


def test_the_rows_of_four_sessions_get_all_pairs() -> None:
    assert effort_for(FULL, 4).pairs == 9
    assert effort_for(FULL, 8).pairs == 3
    assert effort_for(QUICK, 4).pairs == 3
    assert effort_for(FULL, 1).seconds == FULL.seconds


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (WanPlan(Plan(), (-1.0,), (4,)), "--delay must be 0 to 1000 ms"),
        (WanPlan(Plan(), (float("nan"),), (4,)), "--delay must be 0 to 1000 ms"),
        (WanPlan(Plan(), (50.0,), (4, 0)), "--sessions must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(asked: WanPlan, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_wan_plan(asked)
