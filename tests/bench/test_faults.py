"""The schedule of faults: what a seed says."""

from __future__ import annotations

from itertools import pairwise

from fleetchat.bench.faults import Kind, Phase, schedule


def test_a_seed_says_the_whole_schedule() -> None:
    assert schedule(3, stages=2, faults=20, seconds=100) == schedule(3, stages=2, faults=20, seconds=100)
    assert schedule(3, stages=2, faults=20, seconds=100) != schedule(4, stages=2, faults=20, seconds=100)


def test_every_stage_is_killed_and_stopped_in_prefill_and_in_decode() -> None:
    faults = schedule(0, stages=3, faults=12, seconds=100)
    assert {(fault.stage, fault.kind, fault.phase) for fault in faults} == {
        (stage, kind, phase) for stage in range(3) for kind in Kind for phase in Phase
    }


def test_faults_keep_their_distance_and_lie_within_the_time() -> None:
    moments = [fault.at for fault in schedule(1, stages=2, faults=20, seconds=210)]
    assert moments[0] > 0
    assert moments[-1] < 210
    assert all(later - earlier >= 6 for earlier, later in pairwise(moments))
