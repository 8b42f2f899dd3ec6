"""Memory, disk, key and logs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.cutter.manifest import StoredFile
from fleetchat.doctor.disk import check_disk
from fleetchat.doctor.finding import Status
from fleetchat.doctor.key import check_key
from fleetchat.doctor.logs import age_text, check_logs, last_lines, log_files, size_text
from fleetchat.doctor.memory import check_memory, needed_bytes
from fleetchat.keys import load_or_create_key
from tests.peer.builders import manifest

SHARD = StoredFile("x.bin", 1_000_000_000, "0" * 64)
BUILD = replace(manifest(2), stages=tuple(replace(entry, bin=SHARD) for entry in manifest(2).stages))


def check(
    local: list[int], available: int, precision: str = "fast", context: int = 100
) -> tuple[Status, str]:
    found = check_memory(BUILD, local, precision=precision, context=context, available=available)
    assert bool(found.remedy) is (found.status is not Status.OK)
    return found.status, found.text


def test_memory_is_needed_for_processes_shards_and_one_conversation() -> None:
    """Two states of one head of 4: 8 values and two scales a cell; 100 tokens reserve 356 cells."""
    shards = 2 * (150e6 + 1.2e9)
    fast = shards + 2 * 356 * (8 + 2 * 8) * 2 / 0.8
    assert needed_bytes(BUILD, [0, 1], precision="fast", context=100) == pytest.approx(fast, abs=2)
    exact = shards + 2 * 356 * 32 * 2 / 0.8
    assert needed_bytes(BUILD, [0, 1], precision="exact", context=100) == pytest.approx(exact, abs=2)


def test_memory_that_is_enough_just_enough_and_not_enough() -> None:
    assert check([0, 1], 8 * 10**9)[0] is Status.OK
    assert check([0, 1], 3 * 10**9) == (
        Status.WARN,
        "just enough: 3.0 GB are free, 2 stages of Fake on this machine need 2.7 GB for one conversation "
        "of 100 tokens",
    )
    assert check([0, 1], 2 * 10**9)[0] is Status.FAIL
    assert check([1], 2 * 10**9)[0] is Status.OK
    assert check([], 1)[1].endswith("all stages are on peers")
    assert check([0], 0)[0] is Status.WARN


def test_folders_of_one_disk_are_one_matter(tmp_path: Path) -> None:
    folders = {tmp_path / "a" / "b": 30_000_000, tmp_path: 0}
    full = check_disk(folders, lambda folder: 40_000_000)
    assert full.text == f"the disk of {tmp_path / 'a' / 'b'} is full: 40 MB free, 46 MB needed"
    tight = check_disk(folders, lambda folder: 100_000_000)
    assert tight.status is Status.WARN
    fine = check_disk(folders, lambda folder: 12_000_000_000)
    assert (fine.status, fine.text) == (Status.OK, f"12.0 GB free for {tmp_path / 'a' / 'b'}, {tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    found = check_disk({tmp_path / "a" / "b": 0})
    assert found.status is Status.FAIL
    assert "is a file" in found.text


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = check_disk({tmp_path / "new": 0})
    assert found.status is Status.FAIL
    assert f"{tmp_path / 'new'} cannot be written: no permission" in found.text


def test_no_key_is_made(tmp_path: Path) -> None:
    path = tmp_path / "config" / "fleet.key"
    alone, key = check_key(path, named=False, needed=False)
    assert (alone.status, key) == (Status.OK, None)
    with_peers, _ = check_key(path, named=False, needed=True)
    assert with_peers.status is Status.FAIL
    assert "copy the peers' key file there" in with_peers.remedy
    assert not path.parent.exists()


def test_key_files(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    key = load_or_create_key(path)
    assert check_key(path, named=True, needed=True)[1] == key
    named, _ = check_key(tmp_path / "other", named=True, needed=True)
    assert (named.status, named.text) == (Status.FAIL, f"there is no key file {tmp_path / 'other'}")
    path.write_text("nonsense")
    broken, _ = check_key(path, named=False, needed=True)
    assert broken.status is Status.FAIL
    unused, _ = check_key(path, named=False, needed=False)
    assert unused.status is Status.WARN
    assert unused.text.endswith("(only peers need it)")


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    load_or_create_key(path)
    path.chmod(0o644)
    found, key = check_key(path, named=True, needed=True)
    assert (found.status, found.remedy, key) == (Status.FAIL, f"run: chmod 600 {path}", None)


def test_logs_are_listed_newest_first(tmp_path: Path) -> None:
    for age, name in ((3600, "peer-0.log"), (60, "errors.log")):
        (tmp_path / name).write_text("one\ntwo\nthree\n")
        state = (tmp_path / name).stat()
        os.utime(tmp_path / name, (state.st_atime, state.st_mtime - age))
    files = log_files(tmp_path)
    assert [file.path.name for file in files] == ["errors.log", "peer-0.log"]
    assert last_lines(files[0].path, 2) == ["two", "three"]
    assert last_lines(files[0].path, 0) == []
    assert last_lines(tmp_path / "none", 2) == []
    found = check_logs(tmp_path)
    assert found.text == f"2 files, 0.0 kB, in {tmp_path}"
    assert found.details[0].startswith("errors.log: the last internal error was 60 s ago")


def test_no_logs_yet(tmp_path: Path) -> None:
    assert check_logs(tmp_path / "logs").text == f"none yet; they will be in {tmp_path / 'logs'}"


def test_ages_and_sizes_for_people() -> None:
    assert [age_text(seconds) for seconds in (0, 119, 120, 7200, 86400 * 9)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "9 days",
    ]
    assert [size_text(count) for count in (0, 1500, 2_340_000)] == ["0.0 kB", "1.5 kB", "2.3 MB"]
