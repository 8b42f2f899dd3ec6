"""Ring buffers and percentiles, with times given by the test."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleetchat.fleet.recorder import (
    HISTORY_STEP,
    HISTORY_STEPS,
    KEPT_SAMPLES,
    KEPT_SECONDS,
    Rates,
    Samples,
    percentiles,
)
from fleetchat.fleet.telemetry import Percentiles


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Percentiles(0.0, 0.0, 0)),
        ([7.0], Percentiles(7.0, 7.0, 1)),
        ([float(n) for n in range(100, 0, -1)], Percentiles(50.0, 95.0, 100)),
    ],
)
def test_percentiles_are_nearest_rank(values: list[float], expected: Percentiles) -> None:
    assert percentiles(values) == expected


def test_samples_older_than_a_minute_do_not_count() -> None:
    samples = Samples()
    samples.add(0.0, 100.0)
    samples.add(50.0, 1.0)
    assert samples.percentiles(60.0) == Percentiles(1.0, 100.0, 2)
    assert samples.percentiles(60.5) == Percentiles(1.0, 1.0, 1)


def test_a_rate_is_measured_between_its_first_and_last_token() -> None:
    rates = Rates(window=2.0)
    for tenth in range(11):
        rates.add(tenth / 10, 3)
    assert rates.per_second(1.0) == {3: pytest.approx(10.0)}


def test_a_rate_forgets_what_lies_outside_its_window() -> None:
    rates = Rates(window=2.0)
    rates.add(0.0, 3)
    rates.add(0.1, 3)
    assert rates.per_second(5.0) == {}


def test_one_token_has_no_rate_yet() -> None:
    rates = Rates()
    rates.add(1.0, 3)
    assert rates.per_second(1.0) == {3: 0.0}


def test_a_reply_that_is_over_is_no_longer_part_of_what_is_written() -> None:
    rates = Rates()
    for tenth in range(11):
        rates.add(tenth / 10, tenth % 2)
    rates.forget(1)
    assert rates.per_second(1.0) == {0: pytest.approx(5.0)}


@given(some.lists(some.tuples(some.floats(0, 4), some.integers(1, 4)), max_size=60))
def test_rates_add_up_to_that_of_all_and_are_shares_of_the_tokens(told: list[tuple[float, int]]) -> None:
    """Whoever has begun or ended within the window, and in whichever order it was told."""
    each, together = Rates(), Rates()
    for when, session in told:
        each.add(when, session)
        together.add(when, 0)
    rates, total = each.per_second(4.0), together.per_second(4.0).get(0, 0.0)
    assert sum(rates.values()) == pytest.approx(total)
    recent = [session for when, session in told if when >= 2.0]
    assert rates == {
        session: pytest.approx(total * recent.count(session) / len(recent)) for session in recent
    }


@settings(max_examples=50)
@given(some.lists(some.tuples(some.floats(0, 9), some.floats(0, 1e4)), max_size=60), some.integers(1, 9))
def test_figures_are_those_of_the_plain_list_of_values(steps: list[tuple[float, float]], often: int) -> None:
    samples, now = Samples(), 100.0
    kept: list[tuple[float, float]] = []
    for number, (pause, value) in enumerate(steps):
        now += pause
        samples.add(now, value)
        kept.append((now, value))
        assert samples.latest == value
        if number % often:
            continue
        recent = [value for when, value in kept if when >= now - KEPT_SECONDS]
        assert samples.percentiles(now) == percentiles(recent)
        last = int(now // HISTORY_STEP)
        expected = [
            [value for when, value in kept if when // HISTORY_STEP == step]
            for step in range(last - HISTORY_STEPS + 1, last + 1)
        ]
        assert samples.history(now) == tuple(median(values) if values else None for values in expected)


def test_samples_have_a_limit() -> None:
    samples = Samples()
    for number in range(KEPT_SAMPLES + 10):
        samples.add(1.0, float(number))
    assert samples.percentiles(1.0).count == KEPT_SAMPLES


def test_nothing_measured_has_no_history() -> None:
    assert Samples().history(1000.0) == (None,) * HISTORY_STEPS
