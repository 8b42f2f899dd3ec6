"""Another cut from what a fleet measured of itself, and the file in which it keeps that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from fleetchat.errors import InputError
from fleetchat.fleet import epochs, live
from fleetchat.fleet.live import (
    FRESH,
    LEAST_BATCHES,
    LiveKeeper,
    LiveReport,
    LiveStage,
    live_report,
    read_live,
    write_live,
)
from fleetchat.fleet.placement import Load
from fleetchat.fleet.rebalance import propose
from fleetchat.fleet.shapes import SHAPES
from tests.fakes.chain import Letters, request
from tests.fakes.standing_peers import nothing_to_bring, standing_fleet

LOAD = Load(SHAPES["smollm2-135m"], context=2048)
ROOM = 8 * 2**30


def stage(name: str, first: int, last: int, milliseconds: float, memory: int = ROOM) -> LiveStage:
    return LiveStage(f"{name}:7077", name, first, last, milliseconds, 0.2, memory)


def report(*stages: LiveStage) -> LiveReport:
    return LiveReport("smollm2-135m", "b" * 64, 1000.0, 990.0, 240, stages)


def test_a_machine_that_became_slow_gets_fewer_layers() -> None:
    proposal = propose(LOAD, report(stage("one", 0, 17, 40.0), stage("two", 18, 29, 14.0)))
    assert proposal.now == ((0, 17), (18, 29))
    (first, last), (following, end) = proposal.then
    assert (first, end, following) == (0, 29, last + 1)
    assert last < 17
    assert proposal.worthwhile
    assert proposal.slowest_then < proposal.slowest_now == 0.04
    assert proposal.lines[0].split() == [
        "stage",
        "peer",
        "layers",
        "new",
        "a",
        "batch",
        "then",
        "needs",
        "may",
        "use",
    ]
    assert proposal.lines[1].split()[:5] == ["0", "one", "0-17", f"0-{last}", "40.0"]
    assert "instead of 40.0 ms" in proposal.lines[-2]


def test_a_cut_that_is_right_is_left_as_it_is() -> None:
    slowed = propose(LOAD, report(stage("one", 0, 17, 40.0), stage("two", 18, 29, 14.0)))
    (first, last), (following, end) = slowed.then
    per_layer = 40.0 / 18
    again = propose(
        LOAD,
        report(
            stage("one", first, last, per_layer * (last - first + 1)),
            stage("two", following, end, slowed.slowest_then * 1000),
        ),
    )
    assert not again.worthwhile
    assert again.lines[-2] == "the cut is right as it is: no other one makes the slowest stage faster"


def test_every_peer_keeps_a_layer_however_slow_it_is() -> None:
    proposal = propose(LOAD, report(stage("one", 0, 14, 2000.0), stage("two", 15, 29, 1.0)))
    assert proposal.then == ((0, 0), (1, 29))


def test_memory_bounds_what_is_proposed() -> None:
    with pytest.raises(InputError, match="the fleet is too small"):
        propose(LOAD, report(stage("one", 0, 14, 9.0, 2**28), stage("two", 15, 29, 9.0, 2**28)))


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    written = report(stage("one", 0, 17, 40.0), stage("two", 18, 29, 14.0))
    write_live(written, path)
    assert read_live(path) == written
    assert written.is_fresh(1000.0 + FRESH)
    assert not written.is_fresh(1001.0 + FRESH)
    assert written.serves(["one:7077", "two:7077"])
    assert not written.serves(["two:7077", "one:7077"])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "stages": 7}'])
def test_a_file_that_is_none_counts_as_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    assert read_live(path) is None
    path.write_text(content)
    assert read_live(path) is None


@pytest.mark.trio
async def test_a_fleet_measures_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "provide_shards", nothing_to_bring)
    async with standing_fleet("ab") as (fleet, standing):
        assert live_report(fleet, trio.current_time(), 5.0) is None
        asked = request([1, 2, 3], max_tokens=2 * LEAST_BATCHES)
        await fleet.generate(fleet.new_session(), asked, Letters(), on_text=lambda text: None)
        found = live_report(fleet, trio.current_time(), 5.0)
        kept = LiveKeeper(fleet).report()
    assert found is not None
    assert kept is not None
    assert found.written == found.measured == 5.0
    assert found.batches >= LEAST_BATCHES
    assert [(one.name, one.address, one.first, one.last) for one in found.stages] == [
        ("a", str(standing.addresses["a"]), 0, 0),
        ("b", str(standing.addresses["b"]), 1, 1),
    ]
    assert all(one.compute_ms > 0 and one.memory > 0 for one in found.stages)
    assert replace(kept, written=0.0, measured=0.0, stages=()) == replace(
        found, written=0.0, measured=0.0, batches=kept.batches, stages=()
    )


def test_the_file_lies_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    write_live(report(stage("one", 0, 29, 3.0)))
    assert (tmp_path / live.FILE_NAME).is_file()
    assert read_live() == report(stage("one", 0, 29, 3.0))
