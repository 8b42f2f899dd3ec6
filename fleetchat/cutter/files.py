"""Files that are there whole or not at all: hashing, flushing, renaming into place."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fleetchat.cutter.manifest import StoredFile

CHUNK = 1 << 20  # bytes
RENAME_SECONDS = 5.0  # how long Windows may take to let go of a file that a scanner has open


def sha256_of(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file, as hexadecimal; `on_bytes` gets the bytes read so far."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if on_bytes:
                on_bytes(done)
    return digest.hexdigest()


def stored_file(folder: Path, name: str) -> StoredFile:
    """Size and hash of a file of a build."""
    path = folder / name
    return StoredFile(name, path.stat().st_size, sha256_of(path))


def publish(temporary: Path, target: Path) -> None:
    """Flush a finished file or folder to the disk and rename it to `target`, replacing what is there.

    Both must be on the same filesystem. `target` is never seen half-written.
    """
    _flush_tree(temporary)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        # a folder cannot be replaced in one step; the old one is moved aside and then removed
        aside = temporary.with_name(f"{temporary.name}.replaced")
        replace(target, aside)
        replace(temporary, target)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        replace(temporary, target)
    _flush_folder(target.parent)


def replace(source: Path, target: Path) -> None:
    """`os.replace`, tried again while Windows says that something is in use."""
    deadline = time.monotonic() + RENAME_SECONDS
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file with line ends as they are in `text`."""
    path.write_bytes(text.encode("utf-8"))


def failed_write(folder: Path, size: int) -> OSError | None:
    """Why `size` bytes cannot be written into a folder; None when they can.

    For a library that says only that it failed, and takes away what it wrote.
    """
    probe = folder / "probe"
    try:
        with probe.open("wb", buffering=0) as stream:
            left = size
            while left > 0:
                left -= stream.write(bytes(min(left, CHUNK)))
    except OSError as error:
        return error
    finally:
        probe.unlink(missing_ok=True)
    return None


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file where the filesystem can do that, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _flush_tree(path: Path) -> None:
    if path.is_dir():
        for child in path.iterdir():
            _flush_tree(child)
        _flush_folder(path)
        return
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    """Make the folder's entries durable; Windows cannot open folders and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
