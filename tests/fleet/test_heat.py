"""Throttling is told from made-up batch times."""

from __future__ import annotations

import pytest

from fleetchat.fleet.heat import BLOCK, GROWTH, LEAST_BATCHES, MARGIN, THROTTLED, Baseline, Heat, Kind


def run(
    heat: Heat, start: float, seconds: float, milliseconds: float, *, rows: int = 1, cells: int = 0
) -> float:
    """Batches one after the other, back to back with a second stage as slow; returns the end."""
    now = start
    while now < start + seconds:
        now += 2 * milliseconds / 1000
        heat.note(now, Kind(rows, 1, crowded=False), cells=cells, milliseconds=milliseconds)
    return now


def test_without_work_nothing_is_said() -> None:
    heat = Heat()
    assert heat.judge(0.0) is None
    run(heat, 0.0, 0.5, 5.0)
    assert heat.judge(0.5) is None
    assert not heat.throttling


def test_a_steady_stage_has_the_factor_one() -> None:
    heat = Heat()
    end = run(heat, 0.0, 30.0, 5.0)
    assert heat.judge(end) == pytest.approx(1.0)
    assert not heat.throttling


@pytest.mark.parametrize("healthy", [20.0, 60.0, 600.0])
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_a_stage_that_is_twice_as_slow_is_told_within_a_minute(healthy: float, factor: float) -> None:
    heat = Heat()
    now = began = run(heat, 0.0, healthy, 5.0)
    while not heat.throttling:
        now = run(heat, now, 0.25, 5.0 * factor)
        heat.judge(now)
        assert now - began < 60.0
    end = run(heat, now, 60.0, 5.0 * factor)
    assert heat.judge(end) == pytest.approx(factor, rel=0.05)


def test_a_hiccup_is_no_heat() -> None:
    heat = Heat()
    end = run(heat, run(heat, 0.0, 60.0, 5.0), 10.0, 20.0)
    heat.judge(end)
    assert not heat.throttling


def test_it_lets_go_when_the_stage_is_as_fast_again() -> None:
    heat = Heat()
    now = run(heat, run(heat, 0.0, 60.0, 5.0), 60.0, 10.0)
    heat.judge(now)
    assert heat.throttling
    now = run(heat, now, 61.0, 5.0 * (THROTTLED - 0.1))
    heat.judge(now)
    assert heat.throttling, "between the two limits it stays as it was"
    now = run(heat, now, 61.0, 5.0)
    heat.judge(now)
    assert not heat.throttling


def test_it_is_forgotten_when_nothing_is_computed() -> None:
    heat = Heat()
    now = run(heat, run(heat, 0.0, 60.0, 5.0), 60.0, 10.0)
    assert heat.judge(now)
    assert heat.judge(now + 61.0) is None
    assert not heat.throttling


def test_a_growing_context_is_no_heat() -> None:
    heat = Heat()
    now, cells = 0.0, 0
    while cells < 4000:
        milliseconds = 5.0 * (1 + 0.8 * GROWTH * cells)
        now += 2 * milliseconds / 1000
        heat.note(now, Kind(1, 1, crowded=False), cells=cells, milliseconds=milliseconds)
        cells += 1
        heat.judge(now)
        assert not heat.throttling


def test_a_context_that_grows_while_it_is_slow_hides_nothing() -> None:
    heat = Heat()
    now = run(heat, 0.0, 60.0, 5.0)
    for cells in range(1200):
        now += 0.05
        heat.note(now, Kind(1, 1, crowded=False), cells=cells, milliseconds=10.0)
    heat.judge(now)
    assert heat.throttling


@pytest.mark.parametrize("slices", [1, 3])
def test_a_context_that_has_grown_a_lot_excuses_no_more_than_it_cost_before(slices: int) -> None:
    """As measured: three chats, 3,000 cells in 30 s, then another process on the core."""
    heat = Heat()
    now, cells, growth = 0.0, 300, 0.05 / 1000
    while cells < 3300:
        now += 0.03
        milliseconds = 12.0 * (1 + growth * cells)
        heat.note(now, Kind(slices, slices, crowded=False), cells=cells, milliseconds=milliseconds)
        cells += slices
        heat.judge(now)
        assert not heat.throttling
    began = now
    while not heat.throttling:
        now += 0.06
        milliseconds = 2.1 * 12.0 * (1 + growth * cells)
        heat.note(now, Kind(slices, slices, crowded=False), cells=cells, milliseconds=milliseconds)
        cells += slices
        heat.judge(now)
        assert now - began < 60.0
    while now - began < 120.0:
        now += 0.06
        heat.note(now, Kind(slices, slices, crowded=False), cells=cells, milliseconds=milliseconds)
    assert heat.judge(now) == pytest.approx(2.1, rel=0.1)


def test_what_cells_cost_is_learnt_while_all_is_well() -> None:
    baseline = Baseline()
    for cells in (0, 600, 1200):
        for _ in range(BLOCK):
            baseline.add(cells, 10.0 * (1 + 0.1 / 1000 * cells))
    assert baseline.expected(2200) == pytest.approx(11.2 * (1 + MARGIN * 0.1 / 1000 * 1000), rel=1e-3)
    for _ in range(BLOCK):
        baseline.add(2200, 25.0)  # slow: it teaches nothing
    assert baseline.expected(2200) == pytest.approx(11.2 * (1 + MARGIN * 0.1 / 1000 * 1000), rel=1e-3)


ALONE, TWO_WAY, VERIFY, SHARED = (
    Kind(1, 1, crowded=False),
    Kind(1, 1, crowded=True),
    Kind(9, 1, crowded=True),
    Kind(3, 3, crowded=True),
)


def grow(
    heat: Heat,
    start: float,
    seconds: float,
    work: list[tuple[Kind, tuple[int, float], tuple[int, float]]],
    *,
    slower: float = 1.0,
) -> float:
    """Batches of these kinds in turn, each from (cells, ms) to (cells, ms), steadily; returns the end."""
    now = judged = start
    while now < start + seconds:
        share = (now - start) / seconds
        for kind, (cells, least), (more_cells, most) in work:
            milliseconds = slower * (least + share * (most - least))
            now += milliseconds / 1000
            heat.note(now, kind, cells=round(cells + share * (more_cells - cells)), milliseconds=milliseconds)
        if now >= judged + 0.25:
            judged = now
            heat.judge(now)
    return now


def test_three_chats_that_grow_beside_a_drafter_are_no_heat() -> None:
    """As measured on two stages of one machine: what cells cost is known only from these batches."""
    heat = Heat()
    now = grow(heat, 0.0, 6.0, [(ALONE, (80, 6.9), (400, 8.0))])
    work = [
        (ALONE, (500, 8.9), (1900, 12.4)),
        (TWO_WAY, (500, 9.3), (1900, 17.0)),
        (VERIFY, (843, 23.5), (4210, 53.0)),
    ]
    now = grow(heat, now, 70.0, work)
    assert not heat.throttling
    factor = heat.judge(now)
    assert factor == pytest.approx(1.0, abs=0.1)


def test_a_busy_loop_on_the_core_is_told_though_the_sizes_of_the_batches_change() -> None:
    """As measured: the batches grow when a core slows, and long contexts cost more."""
    heat = Heat()
    now = grow(heat, 0.0, 6.0, [(ALONE, (80, 6.9), (400, 8.0))])
    now = grow(heat, now, 20.0, [(SHARED, (860, 10.5), (3314, 15.5))])
    now = began = grow(heat, now, 16.0, [(TWO_WAY, (1200, 12.4), (1430, 13.3))])
    grow(
        heat,
        now,
        30.0,
        [(TWO_WAY, (1430, 13.3), (1700, 14.3)), (SHARED, (4500, 18.0), (5900, 20.8))],
        slower=2.0,
    )
    told = heat.judge(began + 30.0)
    assert heat.throttling
    assert told == pytest.approx(2.0, rel=0.15)


def test_a_stage_that_was_slow_when_first_seen_is_not_called_slow_ever_after() -> None:
    """More cells in less time: that is no growth of minus so much, and what comes after costs more again."""
    heat = Heat()
    now = grow(heat, 0.0, 5.0, [(SHARED, (100, 16.0), (600, 16.0))])
    now = grow(heat, now, 5.0, [(SHARED, (600, 9.0), (900, 9.5))])
    now = grow(heat, now, 60.0, [(SHARED, (900, 9.5), (6000, 25.0))])
    assert not heat.throttling
    assert heat.judge(now) == pytest.approx(1.0, abs=0.1)


def test_stages_that_compute_at_the_same_time_are_not_compared_with_one_alone() -> None:
    heat = Heat()
    now = 0.0
    for kind, milliseconds in [(ALONE, 5.0), (TWO_WAY, 9.0)]:
        now = grow(heat, now, 60.0, [(kind, (0, milliseconds), (0, milliseconds))])
        assert heat.judge(now) == pytest.approx(1.0)


def test_half_of_the_time_counts_not_half_of_the_batches() -> None:
    """Four times as slow: a fifth of the batches, when half of the time has passed."""
    heat = Heat()
    now = began = run(heat, 0.0, 60.0, 5.0)
    while not heat.throttling:
        now = run(heat, now, 0.25, 20.0)
        heat.judge(now)
    assert now - began == pytest.approx(20.0, abs=1.0)


def test_wide_batches_are_not_compared_with_narrow_ones() -> None:
    heat = Heat()
    now = run(heat, 0.0, 30.0, 5.0, rows=1)
    now = run(heat, now, 60.0, 15.0, rows=8)
    assert heat.judge(now) == pytest.approx(1.0)


def test_a_baseline_is_the_lowest_median_of_a_block() -> None:
    baseline = Baseline()
    assert baseline.expected(0) is None
    for milliseconds in [4.0] * (BLOCK // 2 + 1) + [0.1] * (BLOCK // 2 - 1):
        baseline.add(100, milliseconds)
    assert baseline.expected(100) == 4.0
    assert baseline.expected(50) == 4.0
    assert baseline.expected(100 + 1000) == pytest.approx(4.0 * 1.25)
    for _ in range(BLOCK):
        baseline.add(110, 3.0)
    assert baseline.expected(110) == 3.0
    for _ in range(BLOCK):
        baseline.add(110, 9.0)
    assert baseline.expected(110) == 3.0


def test_few_batches_say_nothing() -> None:
    heat = Heat()
    for number in range(BLOCK + LEAST_BATCHES - 1):
        heat.note(float(number), Kind(1, 1, crowded=False), cells=0, milliseconds=5.0)
    now = float(BLOCK + LEAST_BATCHES - 2)
    assert heat.factor(now) is None
    heat.note(now + 1, Kind(1, 1, crowded=False), cells=0, milliseconds=5.0)
    assert heat.factor(now + 1) == 1.0
