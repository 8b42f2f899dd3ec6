"""The log folder: what is in it, and can it be written?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fleetchat.doctor.finding import Finding, ok

NAME = "logs"
ERRORS = "errors.log"  # tracebacks of internal errors
TAIL_BYTES = 64 * 1024
RECENT = 7 * 86400.0  # seconds


@dataclass(frozen=True, slots=True)
class LogFile:
    """`age` in seconds since the last line was written."""

    path: Path
    size: int  # bytes
    age: float


def log_files(folder: Path) -> list[LogFile]:
    """The files in the log folder, the one written last first; none when there is no folder."""
    now = time.time()
    found = []
    for path in folder.glob("*"):
        try:
            state = path.stat()
        except OSError:  # rotated away meanwhile
            continue
        if path.is_file():
            found.append(LogFile(path, state.st_size, max(0.0, now - state.st_mtime)))
    return sorted(found, key=lambda file: (file.age, file.path))


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, of a long one only from its last 64 KiB. Empty when it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[-count:] if count > 0 else []


def check_logs(folder: Path) -> Finding:
    """Say where the logs are, and whether internal errors were noted lately."""
    files = log_files(folder)
    if not files:
        return ok(NAME, f"none yet; they will be in {folder}")
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    text = f"{count}, {size_text(sum(file.size for file in files))}, in {folder}"
    errors = next((file for file in files if file.path.name == ERRORS and file.age < RECENT), None)
    if errors is None:
        return ok(NAME, text)
    return ok(
        NAME,
        text,
        f"{ERRORS}: the last internal error was {age_text(errors.age)} ago; "
        "`fleetchat paths --logs --tail 20` shows it",
    )


def age_text(seconds: float) -> str:
    """`5 s`, `12 min`, `3 h`, `9 days`."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def size_text(count: int) -> str:
    """Bytes for people, also few ones."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
