"""Which settings are tried, and which are chosen."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetchat.engine.fast_settings import (
    BY_EXACTNESS,
    DEFAULT,
    HALF,
    MARGIN,
    PLAIN,
    WEIGHTS,
    Choice,
    FastSettings,
    Timing,
    candidates,
    choose,
    explained,
)

SECONDS = st.floats(1e-6, 1e3)
TIMINGS = st.dictionaries(st.sampled_from(BY_EXACTNESS), st.builds(Timing, SECONDS, SECONDS, SECONDS))


def all_times(seconds: float) -> Timing:
    return Timing(seconds, seconds, seconds)


@pytest.mark.parametrize(
    ("threads", "cores", "capabilities", "expected"),
    [
        (1, 1, {"FP32"}, (PLAIN, DEFAULT)),
        (1, 8, {"FP32", "BF16"}, (PLAIN, DEFAULT)),
        (4, 1, {"FP32", "BF16"}, (PLAIN, DEFAULT)),
        (4, 8, {"FP32", "FP16"}, (PLAIN, DEFAULT)),
        (2, 2, {"FP32", "BF16"}, (HALF, PLAIN, DEFAULT)),
        (4, 8, {"BF16"}, (HALF, PLAIN, DEFAULT)),
    ],
)
def test_half_precision_is_tried_with_several_threads_on_several_cores_that_have_it(
    threads: int, cores: int, capabilities: set[str], expected: tuple[FastSettings, ...]
) -> None:
    assert candidates(threads, cores, capabilities) == expected


def test_the_weights_of_a_score_are_those_of_a_mean() -> None:
    assert WEIGHTS == {1: 0.6, 8: 0.25, 64: 0.15}
    assert all_times(0.25).score == pytest.approx(0.25)
    assert Timing(0.5, 1, 1).score == pytest.approx(0.5**0.6)
    assert Timing(1, 0.5, 1).score == pytest.approx(0.5**0.25)
    assert Timing(1, 1, 0.5).score == pytest.approx(0.5**0.15)


def test_a_clock_that_stands_still_gives_a_score() -> None:
    assert all_times(0.0).score == pytest.approx(1e-9)


def test_the_faster_of_two_measurements_counts_time_by_time() -> None:
    assert Timing(1, 5, 3).or_faster(Timing(2, 4, 3)) == Timing(1, 4, 3)


@pytest.mark.parametrize("order", [*itertools.permutations(BY_EXACTNESS)])
@pytest.mark.parametrize(
    ("plain", "default", "half", "expected"),
    [
        (1.00, 1.00, 1.00, PLAIN),
        (1.02, 1.00, 1.00, PLAIN),
        (1.04, 1.00, 1.00, DEFAULT),
        (1.04, 1.02, 1.00, DEFAULT),
        (1.02, 1.04, 1.00, PLAIN),
        (1.04, 1.04, 1.00, HALF),
        (1.60, 1.00, 1.20, DEFAULT),
        (0.50, 1.00, 1.20, PLAIN),
    ],
)
def test_within_three_per_cent_of_the_fastest_the_most_exact_wins(
    plain: float, default: float, half: float, expected: FastSettings, order: tuple[FastSettings, ...]
) -> None:
    times = {PLAIN: plain, DEFAULT: default, HALF: half}
    assert choose({settings: all_times(times[settings]) for settings in order}) == expected


@pytest.mark.parametrize("alone", BY_EXACTNESS)
def test_what_alone_could_be_timed_is_chosen(alone: FastSettings) -> None:
    assert choose({alone: all_times(1)}) == alone


def test_without_any_timing_the_default_is_chosen() -> None:
    assert choose({}) == DEFAULT
    assert explained(DEFAULT, {}) == "nothing else could be measured here"
    assert explained(DEFAULT, {DEFAULT: all_times(1)}) == "nothing else could be measured here"


@given(TIMINGS)
def test_nothing_that_is_as_exact_is_faster_by_more_than_the_margin(
    timings: dict[FastSettings, Timing],
) -> None:
    chosen = choose(timings)
    if not timings:
        return
    best = min(timing.score for timing in timings.values())
    assert timings[chosen].score <= MARGIN * best
    more_exact = BY_EXACTNESS[: BY_EXACTNESS.index(chosen)]
    assert all(timings[one].score > MARGIN * best for one in more_exact if one in timings)


def test_the_reason_compares_with_every_other_candidate() -> None:
    timings = {PLAIN: all_times(1.5), DEFAULT: all_times(1.0), HALF: all_times(0.99)}
    assert str(Choice(DEFAULT, explained(DEFAULT, timings))) == (
        "f32, activations quantised in groups of 32 (measured here: f32, activations not quantised takes "
        "50 % more time; bf16, activations quantised in groups of 32 takes 1.0 % less and is less exact)"
    )
