"""What every command does with the terminal: encodings, error lines, the log of internal errors."""

from __future__ import annotations

import io
import os
import sys
import time
import traceback
from pathlib import Path

from fleetchat.errors import FleetchatError

LOG_LIMIT = 1 << 20  # bytes; an older log is kept once, beside it


def configure_streams() -> None:
    """Answers are UTF-8. What cannot be written is replaced: no answer is lost for one character."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.encoding.lower().replace("_", "-") not in {"utf-8", "utf8"}:
            stream.reconfigure(encoding="utf-8", errors="replace")
        elif stream.errors == "strict":
            stream.reconfigure(errors="replace")


def print_error(error: FleetchatError) -> None:
    """`error: …` and `hint: …`, one line each, on stderr."""
    print_diagnostic(f"error: {error.message}")
    if error.hint:
        print_diagnostic(f"hint: {error.hint}")


def print_diagnostic(text: str) -> None:
    """One line on stderr without control characters. A closed stderr is no reason to fail."""
    from fleetchat.chat.sanitise import sanitise

    line = " ".join(sanitise(text).split("\n"))
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def log_exception(error: BaseException) -> Path | None:
    """Append the traceback to `errors.log` in the log folder; None when it cannot be written."""
    from fleetchat.paths import log_folder

    path = log_folder() / "errors.log"
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            os.replace(path, path.with_suffix(".log.1"))
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n{text}\n")
    except OSError:
        return None
    return path
