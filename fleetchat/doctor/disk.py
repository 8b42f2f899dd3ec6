"""Room on the disks, and whether the folders can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetchat.cutter.recipe import PathSource, Recipe
from fleetchat.doctor.finding import Finding, fail, ok, warn

NAME = "disk"
LEAST_FREE = 16 * 10**6  # bytes: logs and chats
COMFORTABLE = 200 * 10**6  # bytes
PROBE_BYTES = 64 * 1024
TIMES_THE_MODEL = 4  # download or copy, whole model, shards, and room while they are made


def space_for_build(recipe: Recipe, *, fetched: bool) -> int:
    """Bytes that a build takes in the store, at its worst moment."""
    if isinstance(recipe.source, PathSource):
        path = recipe.source.path
        files = [path] if path.is_file() else list(path.glob("*"))
        return TIMES_THE_MODEL * sum(file.stat().st_size for file in files if file.is_file())
    download = 0 if fetched else recipe.sizes.download
    return max(3 * download, download + recipe.sizes.built)


def free_bytes(folder: Path) -> int:
    """Of the disk that the folder is on. Raises OSError."""
    return shutil.disk_usage(existing(folder)).free


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system, the folders of ours that are on it, and the bytes that they need there."""

    free: int
    folders: tuple[Path, ...]
    needed: int


def check_disk(
    folders: Mapping[Path, int],
    free: Callable[[Path], int] = free_bytes,
    write: Callable[[Path], None] | None = None,
) -> Finding:
    """`folders` with the bytes that are about to be stored in each."""
    faults = [fault for folder in folders if (fault := _unwritable(folder, write or try_to_write))]
    disks = [] if faults else disks_of(folders, free)
    faults += [
        f"the disk of {disk.folders[0]} is full: {amount(disk.free)} free, {amount(disk.needed)} needed"
        for disk in disks
        if disk.free < disk.needed
    ]
    if faults:
        return fail(
            NAME,
            "; ".join(faults),
            "free some space (`fleetchat shards rm --unused` helps), or move the folders with "
            "FLEETCHAT_CACHE_DIR, FLEETCHAT_STATE_DIR and FLEETCHAT_CONFIG_DIR",
        )
    rooms = [
        f"{amount(disk.free)} free for {', '.join(str(folder) for folder in disk.folders)}" for disk in disks
    ]
    if any(disk.free < disk.needed + COMFORTABLE for disk in disks):
        return warn(NAME, "; ".join(rooms), "free some space soon; `fleetchat shards rm --unused` helps")
    return ok(NAME, "; ".join(rooms))


def disks_of(folders: Mapping[Path, int], free: Callable[[Path], int]) -> list[Disk]:
    """Folders of one file system together. Raises OSError."""
    found: dict[int, Disk] = {}
    for folder, needed in folders.items():
        device = existing(folder).stat().st_dev
        before = found.get(device, Disk(free(folder), (), LEAST_FREE))
        found[device] = Disk(before.free, (*before.folders, folder), before.needed + needed)
    return list(found.values())


def _unwritable(folder: Path, write: Callable[[Path], None]) -> str:
    try:
        write(folder)
    except OSError as error:
        return f"{folder} cannot be written: {(error.strerror or str(error)).lower()}"
    return ""


def amount(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 10**10 else f"{count / 1e6:,.0f} MB"


def try_to_write(folder: Path) -> None:
    """Write a little where the folder is, or ask whether it could be made. Raises OSError."""
    there = existing(folder)
    if there == folder and there.is_dir():
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    elif not there.is_dir():
        raise NotADirectoryError(20, f"{there} is a file", str(there))
    elif not os.access(there, os.W_OK):
        raise PermissionError(13, f"no permission to write in {there}", str(there))


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
