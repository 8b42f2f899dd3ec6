"""What is wrong with a configured fleet is said with its place, before anything is fetched or built."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cli.main import main
from fleetchat.config import load
from fleetchat.errors import ConfigError, CutRefused
from fleetchat.fleet import configured
from fleetchat.fleet.shapes import SHAPES, known_layers

EMPTY = '[model]\nrecipe = "smollm2-135m"\n'
FILLED = "the stages have 100 layers, but smollm2-135m has 30"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file; nothing is built, and whoever builds fails the test."""
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name))
    (tmp_path / "CONFIG").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(configured, "build_in_process", no_build)
    return tmp_path / "CONFIG" / "fleet.toml"


async def no_build(*_arguments: object, **_options: object) -> None:
    raise AssertionError("nothing is built for a fleet that cannot be")


def fleet(*layers: str) -> str:
    return EMPTY + "".join(
        f'[[fleet.peers]]\naddress = "local"\n{f"layers = {chr(34)}{one}{chr(34)}" if one else ""}\n'
        for one in layers
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (fleet("0-99"), f"layers in [[fleet.peers]]: {FILLED}"),
        (
            fleet("0-5", "7-29"),
            "layers in [[fleet.peers]]: must be one row of layers: "
            "stage 1 starts at layer 7, but layer 6 comes next",
        ),
        (
            fleet("0-17", ""),
            "layers in [[fleet.peers]]: 1 of the 2 peers say which layers they serve, the others do not",
        ),
        ('[fleet]\nmode = "peers"\n', 'mode in [fleet]: the mode is "peers", but no peer is named'),
        (
            '[model]\nrecipe = "smollm2"\n',
            "recipe in [model]: there is no recipe 'smollm2'; the nearest is 'smollm2-135m'",
        ),
    ],
)
def test_the_file_and_the_table_are_named(
    file: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["ask", "hi"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {file}: {message}"
    assert hint.startswith("hint: ")


def test_what_only_the_model_can_tell_is_said_with_the_place_too(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(*_arguments: object, **_options: object) -> None:
        raise CutRefused("the stages have 3 layers, but the model has 2")

    monkeypatch.setattr(configured, "build_in_process", refuse)
    monkeypatch.setattr(configured, "known_layers", lambda name: None)
    file.write_text(fleet("0-2"))
    assert main(["ask", "hi"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        f"error: {file}: layers in [[fleet.peers]]: the stages have 3 layers, but the model has 2"
    )


def test_layers_are_only_asked_of_peers(file: Path) -> None:
    file.write_text(fleet("0-5", "7-29").replace("[model]", '[fleet]\nmode = "embedded"\n[model]'))
    assert configured.layers_of(load()) is None
    file.write_text(fleet("0-17", "18-29"))
    assert configured.layers_of(load()) == ((0, 17), (18, 29))
    file.write_text(fleet("0-17", "18-28"))
    with pytest.raises(ConfigError, match="the stages have 29 layers, but smollm2-135m has 30"):
        configured.layers_of(load())


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_recipe_of_the_user_s_own_may_have_any_layers(file: Path, name: str) -> None:
    assert known_layers(name) == SHAPES[name].layers
    (file.parent / "shards").mkdir()
    (file.parent / "shards" / f"{name}.toml").touch()
    assert known_layers(name) is None
    assert known_layers("no such model") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--layers", "0-5,7-29"],
            "--layers must be one row of layers: stage 1 starts at layer 7, but layer 6 comes next",
        ),
        (["--layers", "0-5,6-30"], "--layers 0-5,6-30 are 31 layers, but smollm2-135m has 30"),
        (["--layers", "0-5,6-29", "--stages", "3"], "--layers 0-5,6-29 are 2 stages, but --stages 3"),
    ],
)
@pytest.mark.usefixtures("file")
def test_layers_of_the_command_line_are_refused_before_anything_is_fetched(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_source(*_arguments: object) -> None:
        raise AssertionError("nothing is looked for")

    monkeypatch.setattr("fleetchat.cutter.build.build", no_source)
    assert main(["shards", "build", "smollm2-135m", *options]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {message}"]
