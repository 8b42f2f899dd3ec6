"""At rest nothing is sent to the screen; whatever changes is, and so is a pipeline that is still in sight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.app.events import ChatNumber, SnapshotTaken
from fleetchat.app.panel.layout import ZOOMS
from fleetchat.app.snapshot_news import SnapshotNews
from tests.fakes.panel import busy_snapshot, resting_snapshot


def test_the_first_snapshot_is_news_and_the_same_one_later_is_not() -> None:
    news = SnapshotNews()
    assert news.has(SnapshotTaken(resting_snapshot(104.0)))
    assert not news.has(SnapshotTaken(resting_snapshot(104.25)))


def test_work_is_news_and_stays_news_as_long_as_it_can_be_looked_at() -> None:
    news = SnapshotNews()
    assert news.has(SnapshotTaken(busy_snapshot(100.0)))
    assert news.has(SnapshotTaken(busy_snapshot(100.0)))
    assert news.has(SnapshotTaken(resting_snapshot(100.0 + ZOOMS[-1])))
    assert not news.has(SnapshotTaken(resting_snapshot(100.25 + ZOOMS[-1])))


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
