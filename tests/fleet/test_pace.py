"""What the chain's pace is worked out from."""

from __future__ import annotations

import pytest

from fleetchat.fleet.pace import PaceKeeper, blended
from fleetchat.wire.frames import StageTiming


def timing(compute_ms: float, queue_ms: float = 0.0) -> StageTiming:
    return StageTiming(round(1000 * queue_ms), round(1000 * compute_ms), 0, ())


def note(keeper: PaceKeeper, *timings: StageTiming, seconds: float, rows: int = 1, prefill: int = 0) -> None:
    keeper.note(timings, rows=rows, prefill_rows=prefill, seconds=seconds)


def test_time_in_queues_is_no_part_of_the_traversal() -> None:
    keeper = PaceKeeper()
    note(keeper, timing(8), timing(10, queue_ms=30), seconds=0.060)
    assert keeper.pace.traversal == pytest.approx(0.030)
    assert keeper.pace.slowest_stage == pytest.approx(0.010)


def test_a_traversal_is_never_shorter_than_what_the_stages_computed() -> None:
    keeper = PaceKeeper()
    note(keeper, timing(8, queue_ms=20), timing(10, queue_ms=30), seconds=0.060)
    assert keeper.pace.traversal == pytest.approx(0.018)


def test_the_slowest_stage_is_that_of_the_averages() -> None:
    keeper = PaceKeeper()
    for first, second in [(8, 10), (12, 9), (8, 10), (8, 10)]:
        note(keeper, timing(first), timing(second), seconds=0.02)
    assert keeper.pace.slowest_stage == max(keeper.stage_seconds) == keeper.stage_seconds[1]


def test_a_traversal_among_chunks_does_not_count() -> None:
    keeper = PaceKeeper()
    keeper.note([timing(8)], rows=1, prefill_rows=0, seconds=0.02)
    keeper.note([timing(16)], rows=1, prefill_rows=0, seconds=0.5, calm=False)
    assert keeper.pace.traversal == pytest.approx(0.02)
    assert keeper.pace.slowest_stage == pytest.approx(blended(0.008, 0.016))


def test_a_chunk_alone_counts_whole() -> None:
    keeper = PaceKeeper()
    note(keeper, timing(8), timing(10), seconds=0.02)
    note(keeper, timing(16), timing(24), seconds=0.05, rows=12, prefill=12)
    assert keeper.pace.chunk_row == pytest.approx(0.002)
    assert keeper.pace.traversal == pytest.approx(0.02)  # chunks do not count there


def test_a_chunk_beside_decodes_counts_for_what_it_adds() -> None:
    keeper = PaceKeeper()
    note(keeper, timing(8), timing(10), seconds=0.02)
    note(keeper, timing(14), timing(13), seconds=0.04, rows=14, prefill=12)
    assert keeper.pace.chunk_row == pytest.approx(0.006 / 12)
    note(keeper, timing(1), timing(1), seconds=0.01, rows=14, prefill=12)
    assert keeper.pace.chunk_row == pytest.approx(blended(0.0005, 0.00005 / 12))


def test_an_empty_batch_says_nothing() -> None:
    keeper = PaceKeeper()
    note(keeper, seconds=1.0)
    note(keeper, timing(1), seconds=1.0, rows=0)
    assert keeper.pace.traversal == 0
