"""What is there when the fleet is ready is not looked at by the collector any more."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fleetchat.app.events import FleetReady, RuntimeEvent, Told
from fleetchat.cli.collector import NEW_OBJECTS, sparing_collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_it_is_spared_when_a_fleet_is_ready_and_every_event_is_passed_on() -> None:
    passed: list[RuntimeEvent] = []
    report = sparing_collector(passed.append)
    frozen = gc.get_freeze_count()
    report(Told("not yet"))
    assert gc.get_freeze_count() == frozen
    report(FleetReady("a model", 2048))
    assert gc.get_freeze_count() > 10_000  # all of this process
    assert gc.get_threshold()[0] == NEW_OBJECTS
    assert passed == [Told("not yet"), FleetReady("a model", 2048)]


def test_what_came_later_is_collected_all_the_same() -> None:
    class Knot:
        there = 0

        def __init__(self) -> None:
            self.self = self
            Knot.there += 1

        def __del__(self) -> None:
            Knot.there -= 1

    sparing_collector(lambda event: None)(FleetReady("a model", 2048))
    Knot()
    assert Knot.there == 1
    gc.collect()
    assert Knot.there == 0
