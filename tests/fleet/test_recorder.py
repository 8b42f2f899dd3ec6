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
    Rate,
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


def test_a_rate_is_measured_between_its_first_and_last_event() -> None:
    rate = Rate(window=2.0)
    for tenth in range(11):
        rate.add(tenth / 10)
    assert rate.per_second(1.0) == pytest.approx(10.0)


def test_a_rate_forgets_what_lies_outside_its_window() -> None:
    rate = Rate(window=2.0)
    rate.add(0.0)
    rate.add(0.1)
    assert rate.per_second(5.0) == 0.0


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
