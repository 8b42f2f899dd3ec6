"""One build at a time, and a dead build does not keep the lock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fleetchat.cutter import lock
from fleetchat.cutter.lock import locked, process_alive


def dead_process() -> int:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    return int(ended.stdout)


def test_the_lock_is_there_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "build.lock"
    with locked(path):
        assert path.read_text().split()[:2] == [str(os.getpid()), socket.gethostname()]
    assert not path.exists()


def test_the_lock_goes_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "build.lock"
    with pytest.raises(RuntimeError), locked(path):
        raise RuntimeError
    assert not path.exists()


def test_the_second_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "build.lock"
    said: list[str] = []
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with locked(path, lambda who: (said.append(who), waiting.set())):  # type: ignore[func-returns-value]
            order.append("second")

    with locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert said == [f"process {os.getpid()}"]
    assert not path.exists()


def test_the_lock_of_a_dead_process_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "build.lock"
    path.write_text(f"{dead_process()} {socket.gethostname()} aa")
    with locked(path):
        assert path.read_text().startswith(f"{os.getpid()} ")


@pytest.mark.parametrize("content", ["1 another-host aa", "", "nonsense", "x y z"])
def test_a_lock_that_nobody_touches_is_taken(tmp_path: Path, content: str) -> None:
    path = tmp_path / "build.lock"
    path.write_text(content)
    long_ago = time.time() - lock.STALE_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    with locked(path):
        assert path.read_text().startswith(f"{os.getpid()} ")


def test_the_holder_touches_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "TOUCH_SECONDS", 0.01)
    path = tmp_path / "build.lock"
    with locked(path):
        os.utime(path, (1, 1))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime < 2:
            assert time.monotonic() < deadline


def test_which_processes_live() -> None:
    assert process_alive(os.getpid())
    assert not process_alive(dead_process())
