"""Ring buffers and percentiles, with times given by the test."""

from __future__ import annotations

import pytest

from fleetchat.fleet.recorder import Rate, Samples, percentiles
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
