"""One build at a time in a store: a lock file that a dead build cannot keep.

The file is created exclusively and holds process id and host. Its owner touches it every few seconds, so
that a lock is known to be stale on any system: its process is gone, or it was not touched for a minute.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TOUCH_SECONDS = 5.0
STALE_SECONDS = 60.0
POLL_SECONDS = 0.1


@contextmanager
def locked(path: Path, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lock file; wait while another live process holds it.

    `on_wait` is called once, with who holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    told = False
    while not _take(path):
        holder = _read(path)
        if holder is not None and _is_stale(path, holder):
            _break(path, holder)
        elif not told and holder is not None:
            on_wait(f"process {holder.split()[0]}" if holder.split() else "another process")
            told = True
        else:
            time.sleep(POLL_SECONDS)
    finished = threading.Event()
    toucher = threading.Thread(target=_keep_touched, args=(path, finished), daemon=True)
    toucher.start()
    try:
        yield
    finally:
        finished.set()
        toucher.join()
        with suppress(OSError):
            path.unlink()


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock file for a moment unless another live process does; whether it is held."""
    if (holder := _read(path)) is not None and _is_stale(path, holder):
        _break(path, holder)
    taken = False
    with suppress(OSError):
        taken = _take(path)
    try:
        yield taken
    finally:
        if taken:
            with suppress(OSError):
                path.unlink()


def process_alive(process_id: int) -> bool:
    """Whether a process of this machine exists."""
    if os.name == "nt":
        return _alive_on_windows(process_id)
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _take(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    except PermissionError:
        if os.name != "nt":  # there it means that the file is just being removed
            raise
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()} {socket.gethostname()} {secrets.token_hex(8)}")
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _is_stale(path: Path, holder: str) -> bool:
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return False
    if age > STALE_SECONDS:
        return True
    words = holder.split()
    if len(words) < 2 or not words[0].isdecimal() or words[1] != socket.gethostname():
        return False
    return not process_alive(int(words[0]))


def _break(path: Path, holder: str) -> None:
    """Remove a stale lock; rename first, so that of two who try only one removes it."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with suppress(OSError):
        os.replace(path, aside)
        if _read(aside) != holder:  # it was taken anew in between
            os.replace(aside, path)
        else:
            aside.unlink()


def _keep_touched(path: Path, finished: threading.Event) -> None:
    while not finished.wait(TOUCH_SECONDS):
        with suppress(OSError):
            os.utime(path)


def _alive_on_windows(process_id: int) -> bool:
    # os.kill(pid, 0) would send Ctrl+C there
    import ctypes

    query_limited_information, still_active = 0x1000, 259
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(query_limited_information, False, process_id)
    if not handle:
        return False
    code = ctypes.c_ulong()
    known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return not known or code.value == still_active
