"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetchat.config.remembered import RENAME_ATTEMPTS, write_private


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state.toml"
    write_private(target, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_private(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failures", [RENAME_ATTEMPTS - 1, RENAME_ATTEMPTS])
def test_a_file_that_is_held_for_a_moment_is_tried_again(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    replace = os.replace

    def held(source: str, target: Path) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= failures:
            raise PermissionError("held")
        replace(source, target)

    monkeypatch.setattr(os, "replace", held)
    monkeypatch.setattr("fleetchat.config.remembered.time.sleep", lambda seconds: None)
    target = tmp_path / "state.toml"
    if failures < RENAME_ATTEMPTS:
        write_private(target, b"new")
        assert target.read_bytes() == b"new"
    else:
        with pytest.raises(PermissionError):
            write_private(target, b"new")
        assert list(tmp_path.iterdir()) == []
