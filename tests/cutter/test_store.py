"""The store: a build is there whole or not at all."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.cli.main import build_parser
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.manifest_file import to_json
from fleetchat.cutter.store import MANIFEST, Store, build_command
from fleetchat.cutter.unused import remove_unused
from fleetchat.errors import BuildError, ShardDamaged
from fleetchat.ids import BuildKey

Tiny = tuple[Store, Manifest]


@pytest.fixture
def copied(tiny_store: Tiny, tmp_path: Path) -> Tiny:
    """A store of one's own with the tiny model."""
    store, manifest = tiny_store
    shutil.copytree(store.root, tmp_path / "store")
    return Store(tmp_path / "store"), manifest


def test_an_empty_store_has_nothing_and_makes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.builds() == []
    assert store.find(BuildKey("0" * 64)) is None
    assert store.find_recipe("tiny", 2) is None
    assert not store.root.exists()


def test_a_build_is_found_by_key_and_by_recipe(tiny_store: Tiny) -> None:
    store, manifest = tiny_store
    assert store.builds() == [manifest]
    assert store.find(manifest.build_key) == manifest
    assert store.find_recipe("tiny", 2) == manifest
    assert store.find_recipe("tiny", 2, ranges=((0, 1), (2, 2))) == manifest
    assert store.find_recipe("tiny", 2, source=manifest.source) == manifest
    assert store.find_recipe("tiny", 3) is None
    assert store.find_recipe("other", 2) is None
    assert store.find_recipe("tiny", 2, ranges=((0, 0), (1, 2))) is None
    assert store.find_recipe("tiny", 2, source="0" * 64) is None
    assert store.stage_xml(manifest, 1) == store.folder(manifest.build_key) / "stage-01.xml"


@pytest.mark.parametrize("key", ["", "..", "/etc", "0" * 63, "../" * 22])
def test_a_key_is_no_path(tiny_store: Tiny, key: str) -> None:
    assert tiny_store[0].find(BuildKey(key)) is None


def test_an_undamaged_build_is_verified(tiny_store: Tiny) -> None:
    store, manifest = tiny_store
    store.verify(manifest)
    store.verify(manifest, stage=1)


def test_one_flipped_byte_is_found_and_named(copied: Tiny) -> None:
    store, manifest = copied
    path = store.stage_xml(manifest, 0).with_suffix(".bin")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    store.verify(manifest, stage=1)
    for stage in (0, None):
        with pytest.raises(ShardDamaged) as raised:
            store.verify(manifest, stage)
        assert raised.value.message == f"{path} was changed: its SHA-256 differs from the manifest"
        assert raised.value.hint == f"build it again: {build_command(manifest)}"


def test_the_command_that_builds_it_again_can_be_typed(tiny_store: Tiny) -> None:
    _, manifest = tiny_store
    stages = len(manifest.stages)
    balanced = replace(manifest, extra={**manifest.extra, "cut": "balanced"})
    assert build_command(balanced) == f"fleetchat shards build {manifest.recipe} --stages {stages}"
    by_hand = replace(manifest, extra={**manifest.extra, "cut": "by hand"})
    cut = ",".join(f"{one.first_layer}-{one.last_layer}" for one in manifest.stages)
    assert build_command(by_hand) == f"{build_command(balanced)} --layers {cut}"
    for command in (build_command(balanced), build_command(by_hand)):
        assert build_parser().read(command.split()[1:]).recipe == manifest.recipe


def test_a_missing_or_shortened_file_is_named(copied: Tiny) -> None:
    store, manifest = copied
    path = store.stage_xml(manifest, 1)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ShardDamaged, match=f"has {size - 1} bytes instead of {size}"):
        store.verify(manifest)
    path.unlink()
    with pytest.raises(ShardDamaged, match=r"stage-01\.xml cannot be read: No such file"):
        store.verify(manifest)


@pytest.mark.parametrize("content", ["", "{}", "[]", "\x00"])
def test_a_build_with_a_damaged_manifest_is_not_there(copied: Tiny, content: str) -> None:
    store, manifest = copied
    (store.folder(manifest.build_key) / MANIFEST).write_text(content)
    assert store.builds() == []
    assert store.find(manifest.build_key) is None


def test_a_manifest_that_reaches_out_of_its_folder_is_not_there(copied: Tiny) -> None:
    store, manifest = copied
    reaching = replace(manifest, tokenizer=replace(manifest.tokenizer, name="../../secret"))
    (store.folder(manifest.build_key) / MANIFEST).write_text(to_json(reaching))
    assert store.find(manifest.build_key) is None


def test_a_build_under_another_name_is_not_there(copied: Tiny) -> None:
    store, manifest = copied
    os.rename(store.folder(manifest.build_key), store.folder(BuildKey("0" * 64)))
    assert store.builds() == []


def test_publishing_replaces_a_damaged_build(copied: Tiny) -> None:
    store, manifest = copied
    with store.temporary("build") as folder:
        for file in store.folder(manifest.build_key).iterdir():
            shutil.copy(file, folder)
        store.stage_xml(manifest, 0).unlink()
        store.publish(folder, manifest)
    store.verify(manifest)
    assert list(store.temporary_folder.iterdir()) == []


def test_temporary_folders_go_also_after_a_failure(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail() -> None:
        with store.temporary("build") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(store.temporary_folder.iterdir()) == []


def test_leftovers_of_dead_builds_go_and_those_of_live_ones_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead = store.temporary_folder / f"build-{int(ended.stdout)}-aa"
    dead.mkdir(parents=True)
    (dead / "stage-00.bin").write_text("x")
    with store.temporary("build") as live, store.locked():
        assert not dead.exists()
        assert live.exists()


def test_leftovers_are_swept_unless_another_build_is_under_way(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.sweep()
    assert list(tmp_path.iterdir()) == []
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead = store.temporary_folder / f"build-{int(ended.stdout)}-aa"
    with store.locked():
        dead.mkdir(parents=True)
        store.sweep()
        assert dead.exists()
        assert (store.root / "build.lock").exists()
    (store.root / "build.lock").write_text(f"{int(ended.stdout)} {socket.gethostname()} aa")  # it was killed
    with store.temporary("build") as live:
        store.sweep()
        assert live.exists()
    assert not dead.exists()
    assert not (store.root / "build.lock").exists()


def test_too_little_space_is_said_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 7_000_000))
    store = Store(tmp_path / "not" / "there")
    store.check_space(7_000_000)
    with pytest.raises(BuildError) as raised:
        store.check_space(90_000_000)
    assert raised.value.message == f"not enough disk space in {store.root}: 90 MB needed, 7 MB free"
    assert raised.value.exit_code == 2


def test_a_build_is_removed_alone(copied: Tiny) -> None:
    store, manifest = copied
    store.remove(manifest.build_key)
    assert store.builds() == []
    assert store.whole(manifest) is not None
    assert list(store.temporary_folder.iterdir()) == []


def test_what_no_usable_build_needs_is_removed(copied: Tiny) -> None:
    store, manifest = copied
    for folder in (store.whole_folder / "old", store.build_folder / "broken", store.download_folder / "x"):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"12345")
    assert list(remove_unused(store)) == [("builds/broken", 5), ("whole/old", 5), ("downloads/x", 5)]
    store.verify(manifest)
    assert store.whole(manifest) is not None
    assert list(remove_unused(store)) == []


def test_builds_of_another_cutter_format_are_unused(copied: Tiny) -> None:
    store, manifest = copied
    store.write_manifest(store.folder(manifest.build_key), replace(manifest, format=0))
    assert store.find_recipe("tiny", 2) is None
    assert [name.split("/")[0] for name, _ in remove_unused(store)] == ["builds", "whole"]
    assert store.builds() == []
