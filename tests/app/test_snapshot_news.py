"""At rest the screen gets one snapshot a second; whatever changes comes at once, and so does what moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.app.events import ChatNumber, SnapshotTaken
from fleetchat.app.snapshot_news import RefusedMoves, SnapshotNews
from fleetchat.fleet.event_log import EventKind, EventLog
from tests.fakes.panel import busy_snapshot, resting_snapshot


def test_at_rest_one_a_second_is_sent() -> None:
    news = SnapshotNews()
    moments = [104.0 + quarter / 4 for quarter in range(10)]
    sent = [at for at in moments if news.has(SnapshotTaken(resting_snapshot(at)))]
    assert sent == [104.0, 105.0, 106.0]


def test_work_is_news_as_long_as_it_is_in_sight_and_so_is_its_end() -> None:
    news = SnapshotNews()
    assert news.has(SnapshotTaken(busy_snapshot(100.0)))
    assert news.has(SnapshotTaken(busy_snapshot(100.0)))
    ended = replace(busy_snapshot(100.0), timeline=resting_snapshot(100.0).timeline)
    assert news.has(SnapshotTaken(ended))
    assert not news.has(SnapshotTaken(ended))


def test_what_is_on_its_way_is_news() -> None:
    news = SnapshotNews()
    resting = resting_snapshot(104.0)
    assert resting.timeline is not None
    waiting = replace(resting, timeline=replace(resting.timeline, complete_until=103.5))
    assert news.has(SnapshotTaken(resting))
    assert news.has(SnapshotTaken(waiting))


@pytest.mark.parametrize(
    "changes", [{"tokens_per_s": 1.0}, {"epoch": 3}, {"trouble": "a stage is gone"}, {"events": ()}]
)
def test_whatever_changes_is_news_once(changes: dict[str, object]) -> None:
    news = SnapshotNews()
    changed = replace(resting_snapshot(104.25), **changes)
    assert news.has(SnapshotTaken(resting_snapshot(104.0)))
    assert news.has(SnapshotTaken(changed))
    assert not news.has(SnapshotTaken(changed))


def test_a_session_that_comes_or_goes_is_news() -> None:
    news = SnapshotNews()
    resting = resting_snapshot(104.0)
    assert news.has(SnapshotTaken(resting))
    assert news.has(SnapshotTaken(resting, {}, {ChatNumber(1): 7}))
    assert news.has(SnapshotTaken(resting, {ChatNumber(1): 3.5}, {ChatNumber(1): 7}))


def test_a_move_that_failed_is_told_once() -> None:
    log, refusals = EventLog(), RefusedMoves()
    resting = resting_snapshot(104.0)
    log.note(1.0, EventKind.MOVING, "1 stage is made ready")
    log.note(2.0, EventKind.STAYED, "2 stages serve on: no peer answers")
    first = replace(resting, events=log.listed())
    assert refusals.new(first) == ["The fleet did not move: 2 stages serve on: no peer answers"]
    assert refusals.new(first) == []
    log.note(3.0, EventKind.STAYED, "again")
    assert refusals.new(replace(resting, events=log.listed())) == ["The fleet did not move: again"]
