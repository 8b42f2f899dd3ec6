"""Blocks are gathered from snapshots that overlap: each once, as long as they are wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleetchat.app.panel.history import KEPT_SECONDS, SLACK, BlockHistory
from fleetchat.fleet.timeline import Block, PassedBatch, Piece, Timeline, WorkKind
from fleetchat.wire.frames import StageTiming
from tests.fakes.panel import timeline

DECODE = (Piece(1, 1, WorkKind.DECODE),)


def feed(source: Timeline, start: float, end: float) -> None:
    """One batch through two stages."""
    half = round((end - start) * 5e5)
    timings = tuple(StageTiming(0, half, 0, ()) for _ in range(2))
    source.note_batch(PassedBatch(DECODE, start, end, timings), [0.0, 0.0, 0.0])


@settings(max_examples=40)
@given(some.lists(some.tuples(some.floats(0.001, 0.2), some.floats(0, 0.2)), min_size=1, max_size=40))
def test_every_block_is_gathered_once_and_a_window_is_what_the_fleet_shows(
    batches: list[tuple[float, float]],
) -> None:
    source, history, told = Timeline(2), BlockHistory(), []
    every: list[Block] = []
    source.on_block = every.append
    now = 50.0
    for length, pause in batches:
        feed(source, now, now + length)
        now += length + pause
        told += history.take(source.snapshot(now, seconds=1.0, in_flight_since=None))
    assert sorted(told, key=lambda one: (one.lane, one.start)) == sorted(
        every, key=lambda one: (one.lane, one.start)
    )
    for seconds in (0.1, 1.0, 10.0):
        assert history.window(now, seconds) == source.snapshot(now, seconds=seconds, in_flight_since=None)


def test_one_can_look_back() -> None:
    source, history = Timeline(2), BlockHistory()
    for number in range(40):
        feed(source, number * 0.1, number * 0.1 + 0.05)
        history.take(source.snapshot(number * 0.1 + 0.1, seconds=1.0, in_flight_since=None))
    window = history.window(2.0, 0.2)
    assert window is not None
    assert [block.start for block in window.stages[0].blocks] == pytest.approx([1.8, 1.9])
    assert window.stages[0].busy == pytest.approx(0.25)


def test_what_is_under_way_is_not_complete() -> None:
    history = BlockHistory()
    history.take(replace(timeline(), complete_until=99.5))
    window = history.window(100.0, 1.0)
    assert window is not None
    assert window.complete_until == 99.5


def test_another_fleet_begins_anew() -> None:
    history = BlockHistory()
    history.take(timeline(100.0))
    taken = history.take(timeline(50.0))
    assert taken == [
        *timeline(50.0).stages[0].blocks,
        *timeline(50.0).stages[1].blocks,
        *timeline(50.0).drafting.blocks,
    ]
    window = history.window(100.0, 1.0)
    assert window is not None
    assert window.stages[0].blocks == ()


def test_nothing_taken_shows_nothing() -> None:
    assert BlockHistory().window(1.0, 1.0) is None


def test_old_blocks_are_given_up() -> None:
    source, history = Timeline(1), BlockHistory()
    timings = (StageTiming(0, 10_000, 0, ()),)
    for number in range(30_000):
        source.note_batch(PassedBatch(DECODE, number * 0.02, number * 0.02 + 0.01, timings), [0.0, 0.0])
        if number % 25 == 0:
            history.take(source.snapshot(number * 0.02 + 0.01, seconds=1.0, in_flight_since=None))
    kept = len(history._lanes[0])
    assert KEPT_SECONDS * 50 <= kept <= KEPT_SECONDS * 50 + SLACK + 100
