"""Blocks of a timeline from what stages report, on made-up times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleetchat.fleet.timeline import (
    DRAFT_LANE,
    KEPT_BLOCKS,
    Block,
    PassedBatch,
    Piece,
    Timeline,
    WorkKind,
    kind_of,
    passage,
)
from fleetchat.wire.frames import StageTiming

DECODE = Piece(1, 1, WorkKind.DECODE)


def passed(
    sent: float, returned: float, *stages: tuple[float, float], pieces: tuple[Piece, ...] = (DECODE,)
) -> PassedBatch:
    """`stages` are (queue, compute) in seconds."""
    timings = tuple(StageTiming(round(queue * 1e6), round(busy * 1e6), 0, ()) for queue, busy in stages)
    return PassedBatch(pieces, sent, returned, timings)


@pytest.mark.parametrize(
    ("rows", "drafts", "kind"), [(1, 0, "decode"), (5, 4, "verify"), (5, 0, "prefill"), (200, 0, "prefill")]
)
def test_kinds(rows: int, drafts: int, kind: str) -> None:
    assert kind_of(rows, drafts) == kind


def test_time_between_stages_is_spread_as_the_legs_were_measured() -> None:
    batch = passed(10.0, 10.100, (0.0, 0.010), (0.010, 0.020))
    assert passage(batch, [0.001, 0.002, 0.003]) == [
        (pytest.approx(10.010), pytest.approx(10.020)),
        (pytest.approx(10.050), pytest.approx(10.070)),
    ]


def test_without_measurements_the_legs_are_alike() -> None:
    batch = passed(0.0, 0.060, (0.0, 0.010), (0.0, 0.020))
    assert passage(batch, [0.0, 0.002, 0.003]) == [
        (pytest.approx(0.010), pytest.approx(0.020)),
        (pytest.approx(0.030), pytest.approx(0.050)),
    ]


def test_slices_share_the_time_of_their_batch_by_rows() -> None:
    timeline = Timeline(1)
    pieces = (Piece(1, 1, WorkKind.DECODE), Piece(2, 3, WorkKind.VERIFY))
    timeline.note_batch(passed(0.0, 0.008, (0.0, 0.008), pieces=pieces), [0.0, 0.0])
    blocks = timeline.snapshot(0.01, seconds=1.0, in_flight_since=None).stages[0].blocks
    assert blocks == (
        Block(0, 1, WorkKind.DECODE, 1, pytest.approx(0.0), pytest.approx(0.002)),
        Block(0, 2, WorkKind.VERIFY, 3, pytest.approx(0.002), pytest.approx(0.008)),
    )


def test_a_block_that_would_overlap_is_moved() -> None:
    timeline = Timeline(1)
    timeline.note_batch(passed(0.0, 0.010, (0.0, 0.010)), [0.0, 0.0])
    timeline.note_batch(passed(0.004, 0.012, (0.0, 0.006)), [0.0, 0.0])
    first, second = timeline.snapshot(0.02, seconds=1.0, in_flight_since=None).stages[0].blocks
    assert second.start == first.end == pytest.approx(0.010)
    assert second.end == pytest.approx(0.016)


def test_busy_and_bubbles_of_the_time_that_is_known() -> None:
    timeline = Timeline(2)
    for number in range(10):
        timeline.note_batch(passed(0.1 * number, 0.1 * number + 0.1, (0.0, 0.025), (0.0, 0.075)), [0, 0, 0])
    snapshot = timeline.snapshot(1.0, seconds=0.5, in_flight_since=0.9)
    assert [lane.busy for lane in snapshot.stages] == [pytest.approx(0.25), pytest.approx(0.75)]
    assert snapshot.stages[0].bubbles == pytest.approx(0.75)
    assert (snapshot.start, snapshot.complete_until, snapshot.end) == (0.5, 0.9, 1.0)
    assert [len(lane.blocks) for lane in snapshot.stages] == [5, 5]


def test_an_idle_fleet_has_empty_lanes() -> None:
    timeline = Timeline(1)
    timeline.note_batch(passed(0.0, 0.1, (0.0, 0.1)), [0.0, 0.0])
    snapshot = timeline.snapshot(60.0, seconds=1.0, in_flight_since=None)
    assert snapshot.stages[0].blocks == ()
    assert snapshot.stages[0].busy == 0.0


def test_a_batch_that_was_cancelled_leaves_no_block() -> None:
    timeline = Timeline(1)
    timeline.note_batch(passed(0.0, 0.1, (0.1, 0.0)), [0.0, 0.0])
    assert timeline.snapshot(0.2, seconds=1.0, in_flight_since=None).stages[0].blocks == ()


def test_drafting_has_a_lane_and_listeners_get_every_block_once() -> None:
    timeline, heard = Timeline(1), list[Block]()
    timeline.on_block = heard.append
    timeline.note_draft(3, 4, 0.0, 0.005)
    timeline.note_batch(passed(0.005, 0.015, (0.0, 0.010)), [0.0, 0.0])
    assert timeline.snapshot(0.02, seconds=1.0, in_flight_since=None).drafting.blocks == (
        Block(DRAFT_LANE, 3, WorkKind.DRAFT, 4, 0.0, 0.005),
    )
    assert [(block.lane, block.kind) for block in heard] == [(DRAFT_LANE, "draft"), (0, "decode")]


def test_memory_is_bounded() -> None:
    timeline = Timeline(1)
    for number in range(KEPT_BLOCKS + 100):
        timeline.note_batch(passed(number, number + 0.5, (0.0, 0.5)), [0.0, 0.0])
    snapshot = timeline.snapshot(10_000.0, seconds=10_000.0, in_flight_since=None)
    assert len(snapshot.stages[0].blocks) == KEPT_BLOCKS


durations = some.floats(0, 0.05)


@given(some.lists(some.tuples(durations, durations, durations, durations, durations), max_size=20))
def test_blocks_of_a_stage_keep_their_length_and_never_overlap(
    batches: list[tuple[float, float, float, float, float]],
) -> None:
    timeline, sent = Timeline(2), 0.0
    wanted = []
    for step, between, first, second, queued in batches:
        sent += step
        returned = sent + between + first + second + queued
        timeline.note_batch(passed(sent, returned, (0.0, first), (queued, second)), [0.01, 0.02, 0.03])
        wanted.append((first, second))
    lanes = timeline.snapshot(sent + 100, seconds=1000.0, in_flight_since=None).stages
    for stage, lane in enumerate(lanes):
        lengths = [round(one[stage] * 1e6) for one in wanted if round(one[stage] * 1e6)]
        assert [round((block.end - block.start) * 1e6) for block in lane.blocks] == lengths
        for earlier, later in zip(lane.blocks, lane.blocks[1:], strict=False):
            assert later.start >= earlier.end
