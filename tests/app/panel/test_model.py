"""A fleet at rest looks the same a moment later; one at work does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.app.panel.layout import Watching, full_lines, side_lines
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.telemetry import FleetSnapshot, Percentiles
from tests.fakes.panel import busy_snapshot, resting_snapshot, timeline


def model_of(*snapshots: FleetSnapshot) -> PanelModel:
    model = PanelModel()
    for snapshot in snapshots:
        model.take(PanelView(snapshot, {1: 1, 2: 2}))
    return model


def test_nothing_is_known_before_the_first_view() -> None:
    assert PanelModel().still() is None


def test_only_time_has_passed() -> None:
    model = model_of(busy_snapshot(100.0), resting_snapshot(104.0))
    before = model.still(), side_lines(model.view, model.blocks, 60, 40)
    model.take(PanelView(replace(resting_snapshot(104.25), wall_shift=12 * 3600.001), {1: 1, 2: 2}))
    assert before[0] is not None
    assert (model.still(), side_lines(model.view, model.blocks, 60, 40)) == before


def test_work_is_in_sight_as_long_as_the_window_reaches_back_to_it() -> None:
    model = model_of(busy_snapshot(100.0))
    assert model.still() is None
    model.take(PanelView(resting_snapshot(104.0), {}))
    assert model.still() is not None
    assert model.still(seconds=10.0) is None
    watching = Watching(seconds=10.0)
    assert "▒" in "".join(
        span.text for line in full_lines(model.view, model.blocks, watching, 100, 50) for span in line
    )


def test_what_is_on_its_way_is_not_rest() -> None:
    resting = resting_snapshot(104.0)
    assert resting.timeline is not None
    waiting = replace(resting, timeline=replace(resting.timeline, complete_until=103.5))
    assert model_of(waiting).still() is None


@pytest.mark.parametrize(
    "changes", [{"tokens_per_s": 1.0}, {"epoch": 3}, {"trouble": "a stage is gone"}, {"events": ()}]
)
def test_whatever_else_changes_is_seen(changes: dict[str, object]) -> None:
    before = model_of(resting_snapshot(104.0)).still()
    after = model_of(replace(resting_snapshot(104.0), **changes)).still()
    assert before is not None
    assert after is not None
    assert before != after


def test_what_is_finer_than_the_lines_show_is_not_seen() -> None:
    """In the minute after a chat its samples leave one by one: medians move by less than is shown."""
    resting = resting_snapshot(104.0)
    stages = tuple(
        replace(one, compute_ms=Percentiles(one.compute_ms.p50, one.compute_ms.p95 + 0.01, 3))
        for one in resting.stages
    )
    later = replace(resting, stages=stages)
    slower = replace(resting, return_network_ms=Percentiles(2.5, 3.5, 3))
    assert model_of(later).still() == model_of(resting).still()
    assert model_of(slower).still() != model_of(resting).still()


def test_without_a_timeline_there_is_nothing_that_could_move() -> None:
    resting = replace(resting_snapshot(104.0), timeline=None)
    assert model_of(resting).still() == model_of(replace(resting, taken=105.0)).still()
    assert timeline().drafting.blocks  # a busy one has some
