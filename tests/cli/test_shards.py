"""`fleetchat shards`: what it prints, what it removes, and its exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from fleetchat.cli.main import main
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store, build_command

pytestmark = pytest.mark.slow

Tiny = tuple[Store, Manifest]
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def copied(tiny_store: Tiny, tmp_path: Path) -> Tiny:
    """A store of one's own with the tiny model."""
    store, manifest = tiny_store
    shutil.copytree(store.root, tmp_path / "store")
    return Store(tmp_path / "store"), manifest


@pytest.fixture
def recipe_file(tiny_gguf: Path, tmp_path: Path) -> str:
    file = tmp_path / "tiny.toml"
    file.write_text(f"[source]\nkind = 'path'\npath = '{tiny_gguf}'\n")
    return str(file)


def line_of(manifest: Manifest) -> str:
    return f"{manifest.build_key[:12]}  tiny  2 stages  0-1,2-2  1 MB"


def run(store: Store, *arguments: str) -> int:
    return main(["shards", *arguments, "--store", str(store.root)])


def test_building_prints_what_was_built(copied: Tiny, recipe_file: str, capsys: Printed) -> None:
    store, manifest = copied
    assert run(store, "build", recipe_file) == 0
    printed = capsys.readouterr()
    assert printed.out == line_of(manifest) + "\n"
    assert printed.err == "checking the model file\nchecking the stored shards\n"


def test_building_for_a_program_prints_json_lines(copied: Tiny, recipe_file: str, capsys: Printed) -> None:
    store, manifest = copied
    assert run(store, "build", recipe_file, "--layers", "0-1,2-2", "--progress", "json") == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert lines[0] == {"step": "checking the model file", "done": 0, "total": 0}
    assert lines[-1] == {"build_key": manifest.build_key}
    assert printed.err == ""


def test_a_failure_is_told_to_the_program_too(copied: Tiny, capsys: Printed) -> None:
    assert run(copied[0], "build", "smolm2-135m", "--progress", "json") == 2
    printed = capsys.readouterr()
    said = json.loads(printed.out.splitlines()[-1])
    assert said["error"] == "there is no recipe 'smolm2-135m'; the nearest is 'smollm2-135m'"
    assert said["exit"] == 2
    assert printed.err.startswith("error: there is no recipe 'smolm2-135m'")


def test_a_terminal_gets_one_line_that_is_removed(
    copied: Tiny, recipe_file: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(copied[0], "build", recipe_file) == 0
    drawn = capsys.readouterr().err
    assert drawn.startswith("\rchecking the model file …\x1b[K")
    assert drawn.endswith("\r\x1b[K")
    assert "\n" not in drawn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layers", "0-a"], "--layers must be ranges of layers such as 0-17,18-29, not '0-a'"),
        (["--stages", "x"], "command line: --stages must be a whole number, not 'x'"),
        (["--from", "/no/such/file"], "/no/such/file cannot be read: No such file or directory"),
        (["--stagse", "2"], "there is no option --stagse; the nearest is '--stages'"),
    ],
)
def test_wrong_usage_is_exit_2(
    copied: Tiny, recipe_file: str, capsys: Printed, arguments: list[str], said: str
) -> None:
    assert run(copied[0], "build", recipe_file, *arguments) == 2
    assert f"error: {said}\n" in capsys.readouterr().err


def test_the_list(copied: Tiny, capsys: Printed) -> None:
    store, manifest = copied
    assert run(store, "list") == 0
    built, *others = capsys.readouterr().out.splitlines()
    assert built == line_of(manifest)
    assert "not built     qwen3-8b  fetches 16,400 MB, takes 9,760 MB" in others
    assert all(line.startswith("not built     ") for line in others)
    assert run(store, "list", "--json") == 0
    found, *others = json.loads(capsys.readouterr().out)
    assert {one["state"] for one in others} == {"not built"}
    assert next(one for one in others if one["recipe"] == "qwen3-8b")["built_bytes"] == 9_760_000_000
    assert (found["state"], found["recipes"]) == ("built", ["tiny"])
    assert found["build_key"] == manifest.build_key
    assert found["stages"] == [[0, 1], [2, 2]]
    assert found["folder"] == str(store.folder(manifest.build_key))


def test_the_list_of_an_empty_store(tmp_path: Path, capsys: Printed) -> None:
    store = Store(tmp_path / "none")
    assert run(store, "list") == 0
    assert run(store, "list", "--json") == 0
    text, _, document = capsys.readouterr().out.partition("[\n")
    assert {line[:9] for line in text.splitlines()} == {"not built"}
    assert {one["state"] for one in json.loads("[" + document)} == {"not built"}


def test_two_recipes_of_one_model_share_their_shards_and_say_so(
    copied: Tiny, recipe_file: str, capsys: Printed
) -> None:
    store, manifest = copied
    second = Path(recipe_file).with_name("second.toml")
    second.write_text(Path(recipe_file).read_text())
    before = {path: path.stat().st_mtime_ns for path in store.build_folder.rglob("*.bin")}
    assert run(store, "build", str(second)) == 0
    printed = capsys.readouterr()
    shared = line_of(manifest).replace("tiny", "tiny, second")
    assert printed.out == shared + "\n"
    assert "the recipe tiny has the same shards: both use them\n" in printed.err
    assert {path: path.stat().st_mtime_ns for path in store.build_folder.rglob("*.bin")} == before
    assert run(store, "build", recipe_file) == 0
    assert capsys.readouterr().out == shared + "\n"
    assert store.find_recipe("second", 2) == store.find_recipe("tiny", 2)
    assert run(store, "rm", "tiny") == 0
    alone = line_of(manifest).replace("tiny", "second")
    assert capsys.readouterr().out == f"kept     {alone}: the same shards serve second\n"
    assert run(store, "rm", "tiny") == 2
    assert run(store, "rm", "second") == 0
    assert capsys.readouterr().out == f"removed  {alone}\n"
    assert store.builds() == []


def test_verifying_names_the_damaged_build(copied: Tiny, capsys: Printed) -> None:
    store, manifest = copied
    assert run(store, "verify") == 0
    assert capsys.readouterr().out == f"ok       {line_of(manifest)}\n"
    path = store.stage_xml(manifest, 0)
    path.write_bytes(path.read_bytes().replace(b"net", b"net", 1)[:-1] + b"!")
    assert run(store, "verify", "tiny") == 1
    printed = capsys.readouterr()
    assert printed.out == f"damaged  {line_of(manifest)}\n"
    assert printed.err == (
        f"error: {path} was changed: its SHA-256 differs from the manifest\n"
        f"hint: build it again: {build_command(manifest)}\n"
    )


@pytest.mark.parametrize("by", ["recipe", "key", "short key"])
def test_removing_a_build(copied: Tiny, capsys: Printed, by: str) -> None:
    store, manifest = copied
    name = {"recipe": "tiny", "key": manifest.build_key, "short key": manifest.build_key[:8]}[by]
    assert run(store, "rm", name) == 0
    assert capsys.readouterr().out == f"removed  {line_of(manifest)}\n"
    assert store.builds() == []


def test_removing_what_is_unused(copied: Tiny, capsys: Printed) -> None:
    store, manifest = copied
    assert run(store, "rm", manifest.build_key) == 0
    assert run(store, "rm", "--unused") == 0
    assert (
        capsys.readouterr().out.splitlines()[1].startswith(f"removed  whole/{manifest.extra['whole'][:12]}  ")
    )
    assert list(store.whole_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rm"], "name the builds to remove, or give --unused"),
        (["rm", "tiny", "--unused"], "name the builds to remove, or give --unused"),
        (["rm", "tyni"], "there is no build 'tyni'; the nearest is 'tiny'"),
        (["verify", "0123"], "there is no build '0123'"),
    ],
)
def test_a_build_that_is_not_there_is_exit_2(
    copied: Tiny, capsys: Printed, arguments: list[str], said: str
) -> None:
    assert run(copied[0], *arguments) == 2
    assert f"error: {said}" in capsys.readouterr().err
    assert len(copied[0].builds()) == 1


def test_the_group_alone_is_wrong_usage(capsys: Printed) -> None:
    assert main(["shards"]) == 2
    assert "error: the following arguments are required: ACTION" in capsys.readouterr().err
