"""What the program remembers by itself: which `./fleet.toml` the user confirmed.

Kept in the state folder; the user's own files are never written.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from fleetchat.config.files import TomlFile, read_toml
from fleetchat.errors import ConfigError
from fleetchat.paths import state_folder

RENAME_ATTEMPTS = 5  # on Windows a virus scanner may hold the old file open for a moment


def is_confirmed(file: TomlFile) -> bool:
    """Whether exactly this content at exactly this path was confirmed before."""
    return _entry(file) in _confirmed()


def remember_confirmation(file: TomlFile) -> None:
    """Keep the confirmation; it replaces one of an older content. Raises OSError."""
    import tomli_w

    entry = _entry(file)
    others = [known for known in _confirmed() if known.get("path") != entry["path"]]
    write_private(_confirmations_file(), tomli_w.dumps({"fleet_file": [*others, entry]}).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only the user can read, all of it or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _replace(source: str, target: Path) -> None:
    for attempt in range(RENAME_ATTEMPTS):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if attempt == RENAME_ATTEMPTS - 1:
                raise
            time.sleep(0.05 * 2**attempt)


def _confirmations_file() -> Path:
    return state_folder() / "confirmed.toml"


def _confirmed() -> list[dict[str, Any]]:
    """A file that is missing or damaged counts as empty: the user is asked again."""
    try:
        entries = read_toml(_confirmations_file()).document.get("fleet_file", [])
    except ConfigError:
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _entry(file: TomlFile) -> dict[str, Any]:
    return {"path": str(file.path.resolve()), "sha256": file.sha256}
