"""An engine that is made for a peer: which settings it gets, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.engine.stage_timing import CELLS
from fleetchat.errors import FleetError, InputError
from fleetchat.paths import settings_folder
from fleetchat.peer.engines import EXACT, MEASURING, VARIABLE, create_engine, is_measuring, settled
from fleetchat.peer.loading import EngineRequest


class Told:
    """What a request heard."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.settings: list[str] = []


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def request_(tiny_store: tuple[Store, Manifest], told: Told) -> EngineRequest:
    """The last stage of the tiny model, in `fast`."""
    store, manifest = tiny_store
    return EngineRequest(
        xml=store.stage_xml(manifest, 1),
        manifest=manifest,
        entry=manifest.stages[1],
        precision="fast",
        engine="masked",
        device="CPU",
        threads=1,
        cells=1024,
        on_step=told.steps.append,
        on_settings=told.settings.append,
    )


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the records; settings are measured."""
    monkeypatch.setenv(VARIABLE, "measure")
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", str(tmp_path))
    return settings_folder()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["masked", "paged"])
def test_the_first_load_measures_and_says_so_and_the_next_one_reads(
    engine: str, request_: EngineRequest, told: Told, measuring: Path
) -> None:
    asked = replace(request_, engine=engine)
    made = create_engine(asked)
    assert made.traits.cells == 1024
    assert made.sessions() == []
    assert told.steps == [MEASURING, "loading the shard"]
    (record,) = measuring.iterdir()
    before = record.read_bytes()
    create_engine(replace(asked, entry=asked.manifest.stages[1])).close()
    assert told.steps == [MEASURING, "loading the shard"]
    assert record.read_bytes() == before
    assert told.settings[0] == told.settings[1]
    assert "(measured here: " in told.settings[0]


@pytest.mark.slow
def test_a_large_shard_is_loaded_once_its_settings_are_timed_on_two_matrices(
    request_: EngineRequest, told: Told, measuring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetchat.peer.engines.LARGE_SHARD", 0)
    hidden = replace(request_.manifest, hidden=64)  # made-up groups of weights need a width that they divide
    choice = settled(replace(request_, manifest=hidden, xml=Path("nowhere.xml")))  # the shard is not read
    assert told.steps == [MEASURING]
    assert "measured here: " in str(choice)
    assert len([*measuring.iterdir()]) == 1


@pytest.mark.slow
def test_other_threads_are_measured_anew_and_bf16_is_never_taken_with_one(
    request_: EngineRequest, told: Told, measuring: Path
) -> None:
    assert settled(request_).settings.compute == "f32"
    assert all('"bf16"' not in record.read_text() for record in measuring.iterdir())
    settled(replace(request_, threads=2))
    assert told.steps == [MEASURING, MEASURING]
    assert len([*measuring.iterdir()]) == 2


@pytest.mark.slow
def test_exact_measures_nothing(request_: EngineRequest, told: Told, measuring: Path) -> None:
    create_engine(replace(request_, precision="exact")).close()
    assert (told.steps, told.settings) == ([], [EXACT])
    assert not measuring.exists()


@pytest.mark.slow
def test_a_stage_with_too_few_cells_measures_nothing(
    request_: EngineRequest, told: Told, measuring: Path
) -> None:
    create_engine(replace(request_, cells=CELLS - 1)).close()
    assert told.steps == []
    assert told.settings == ["f32, activations quantised in groups of 32 (not measured: that takes 75 cells)"]


@pytest.mark.slow
def test_the_variable_switches_it_off(
    request_: EngineRequest, told: Told, measuring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "default")
    create_engine(request_).close()
    assert told.steps == []
    assert told.settings == [
        "f32, activations quantised in groups of 32 (not measured: FLEETCHAT_FAST_SETTINGS=default)"
    ]
    assert not measuring.exists()


def test_the_variable_is_measure_or_default() -> None:
    assert is_measuring({})
    assert is_measuring({VARIABLE: "measure"})
    assert not is_measuring({VARIABLE: "default"})
    with pytest.raises(InputError, match="FLEETCHAT_FAST_SETTINGS is measure or default, not 'off'"):
        is_measuring({VARIABLE: "off"})


@pytest.mark.slow
def test_a_shard_that_cannot_be_read_is_told_as_before(
    request_: EngineRequest, tmp_path: Path, measuring: Path
) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text("this is no model")
    with pytest.raises(FleetError, match=r"cannot load broken\.xml on CPU"):
        create_engine(replace(request_, xml=broken))
    assert not measuring.exists()
