"""Which programs are writing to the chat store right now.

Each program holds a lock on a file of its own, which ends with the program however it ends. The lock is
SQLite's, because that works the same on every system.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path


class Writers:
    """`name` is this program's. `folder` holds a file for each program."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError or sqlite3.Error."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.name = secrets.token_hex(8)
        self._lock = sqlite3.connect(folder / self.name, isolation_level=None, check_same_thread=False)
        self._lock.execute("BEGIN EXCLUSIVE")

    def close(self) -> None:
        self._lock.close()
        _remove(self._folder / self.name)

    def is_alive(self, name: str) -> bool:
        """Whether the program of that name still runs; the file of one that does not is removed."""
        file = self._folder / name
        if not name.isalnum() or not file.exists():
            return False
        try:
            with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as probe:
                probe.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return True
        _remove(file)
        return False


def _remove(file: Path) -> None:
    for path in (file, file.with_name(f"{file.name}-journal")):
        with suppress(OSError):
            path.unlink()
