from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetchat.errors import ConfigError
from fleetchat.keys import load_or_create_key, read_key

posix_only = pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_new_key_has_32_bytes_and_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "new" / "fleet.key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key == read_key(path)
    assert path.read_text() == key.hex() + "\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["fleet.key"]


@posix_only
def test_a_new_key_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    load_or_create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_racing_processes_get_one_key(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_or_create_key(path), range(16)))
    assert len(keys) == 1


def test_a_missing_key_says_where_it_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    with pytest.raises(ConfigError) as caught:
        read_key(path)
    assert caught.value.message == f"there is no key file {path}"
    assert caught.value.hint is not None


@pytest.mark.parametrize("text", ["", "\n", "ab" * 31, "ab" * 33, "x" * 64, "\u00e9" * 64, "ab" * 32 + " ab"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "fleet.key", text)
    with pytest.raises(ConfigError, match="must be 64 hexadecimal digits"):
        read_key(path)


@pytest.mark.parametrize("text", ["ab" * 32, "AB" * 32 + "\r\n", "  " + "ab" * 32 + "\n\n"])
def test_white_space_and_case_do_not_matter(tmp_path: Path, text: str) -> None:
    assert read_key(write(tmp_path / "fleet.key", text)) == b"\xab" * 32


@posix_only
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_open_to_others_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "fleet.key", "ab" * 32, mode)
    with pytest.raises(ConfigError) as caught:
        read_key(path)
    assert caught.value.message == f"the key file {path} is open to other users"
    assert caught.value.hint == f"run: chmod 600 {path}"


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "fleet.key"
    with pytest.raises(ConfigError, match="cannot be written"):
        load_or_create_key(path)
