"""Folders of the user and shipped files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fleetchat import paths
from fleetchat.errors import ConfigError, FleetchatError

FOLDERS = {
    "FLEETCHAT_CONFIG_DIR": paths.config_folder,
    "FLEETCHAT_CACHE_DIR": paths.cache_folder,
    "FLEETCHAT_STATE_DIR": paths.state_folder,
}


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_variable_moves_a_folder(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert FOLDERS[variable]() == tmp_path / "elsewhere"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("variable", FOLDERS)
def test_an_empty_variable_moves_nothing(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    usual = FOLDERS[variable]()
    monkeypatch.setenv(variable, "")
    assert FOLDERS[variable]() == usual
    assert usual.is_absolute()
    assert "fleetchat" in usual.parts


def test_a_relative_variable_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", "cache")
    assert paths.store_folder() == tmp_path / "cache" / "shards"


def test_logs_lie_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    assert paths.log_folder() == tmp_path / "logs"


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_folder_that_cannot_be_written_is_named_with_its_variable(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name in FOLDERS:
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv(variable, str(tmp_path / "file" / "ours"))
    folder = FOLDERS[variable]() / "logs"
    with pytest.raises(ConfigError) as refused:
        paths.require_writable(folder)
    assert refused.value.message.startswith(f"{folder} cannot be written: ")
    kind = {"STATE": "state", "CACHE": "cache", "CONFIG": "configuration"}[variable.split("_")[1]]
    assert refused.value.hint == (
        f"it is in the {kind} folder {folder.parent}: {variable} names it, `fleetchat paths` shows them all"
    )


def test_a_folder_of_ours_is_made(tmp_path: Path) -> None:
    paths.require_writable(tmp_path / "one" / "two")
    assert (tmp_path / "one" / "two").is_dir()


def test_of_another_place_no_variable_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refused:
        paths.require_writable(tmp_path / "file" / "store")
    assert refused.value.hint is None


@pytest.mark.parametrize("name", paths.SHIPPED)
def test_everything_shipped_is_found_in_a_checkout(name: str) -> None:
    assert paths.shipped(name).exists()


@pytest.mark.parametrize("packaged", [True, False])
def test_shipped_looks_inside_the_package_before_the_checkout(
    packaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fleetchat"
    (package / "_shipped").mkdir(parents=True)
    (tmp_path / "fleet.toml").touch()
    if packaged:
        (package / "_shipped" / "fleet.toml").touch()
    monkeypatch.setattr(paths, "__file__", str(package / "paths.py"))
    expected = package / "_shipped" / "fleet.toml" if packaged else tmp_path / "fleet.toml"
    assert paths.shipped("fleet.toml") == expected


def test_a_damaged_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "fleetchat" / "paths.py"))
    with pytest.raises(FleetchatError, match=r"damaged: themes is missing"):
        paths.shipped("themes")


def test_only_what_is_shipped_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="not shipped"):
        paths.shipped("../secret")


@pytest.mark.slow
def test_the_wheel_carries_what_is_shipped(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    checkout = paths.shipped("fleet.toml").parent
    (wheel,) = WheelBuilder(str(checkout)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if "/_shipped/" in name}
    expected = {"fleet.toml"}
    for kind in ("shards", "themes"):
        expected |= {
            f"{kind}/{file.name}" for file in (checkout / kind).iterdir() if not file.name.startswith(".")
        }
    assert packed == {f"fleetchat/_shipped/{name}" for name in expected}
