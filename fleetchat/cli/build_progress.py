"""How a build's progress is shown: a line that is updated, plain lines, or JSON lines for a program."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from fleetchat.errors import CutRefused, ExitCode, FleetchatError

STOPPED = "stopped; nothing half-built stays"
REDRAW_SECONDS = 0.1
CLEAR_TO_END = "\x1b[K"


class Reporter(Protocol):
    """What a build tells. `total` 0 means that the step cannot be counted."""

    def step(self, step: str, done: int, total: int) -> None: ...

    def finished(self, build_key: str) -> None: ...

    def failed(self, error: BaseException) -> None: ...


@contextmanager
def reporter(kind: str) -> Iterator[Reporter]:
    """A reporter of the kind `auto`, `plain` or `json` that also hears of the failure."""
    chosen = _reporter(kind)
    try:
        yield chosen
    except BaseException as error:
        chosen.failed(error)
        raise


def percentage(done: int, total: int) -> str:
    """` 42%`, or nothing when the step cannot be counted."""
    return f" {min(100, 100 * done // total)}%" if total > 0 and done > 0 else ""


class Pace:
    """Another step is shown at once, progress within a step ten times a second."""

    def __init__(self) -> None:
        self._step = ""
        self._shown_at = 0.0

    def is_due(self, step: str) -> bool:
        """Whether to show this now; it then counts as shown."""
        now = time.monotonic()
        if step == self._step and now - self._shown_at < REDRAW_SECONDS:
            return False
        self._step, self._shown_at = step, now
        return True


class JsonLines:
    """One JSON object a line on stdout; the last one has the build key, or the error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()

    def step(self, step: str, done: int, total: int) -> None:
        if self._pace.is_due(step):
            self._write({"step": step, "done": done, "total": total})

    def finished(self, build_key: str) -> None:
        self._write({"build_key": build_key})

    def failed(self, error: BaseException) -> None:
        if isinstance(error, FleetchatError):
            refused = {"refused": True} if isinstance(error, CutRefused) else {}
            said = {"error": error.message, "hint": error.hint or "", "exit": int(error.exit_code)}
            self._write({**said, **refused})
        elif isinstance(error, KeyboardInterrupt):
            self._write({"error": "interrupted", "hint": "", "exit": int(ExitCode.INTERRUPTED)})
        elif isinstance(error, Exception):
            text = f"internal error: {type(error).__name__}: {error}"
            self._write({"error": text, "hint": "", "exit": int(ExitCode.FAILED)})

    def _write(self, message: dict[str, object]) -> None:
        print(json.dumps(message, ensure_ascii=False), file=self._stream, flush=True)


class PlainLines:
    """A line whenever another step begins."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    def step(self, step: str, done: int, total: int) -> None:
        if step != self._shown:
            self._shown = step
            print(step, file=self._stream, flush=True)

    def finished(self, build_key: str) -> None:
        pass

    def failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            print(STOPPED, file=self._stream, flush=True)


class TerminalLine:
    """One line that is drawn anew, at most ten times a second, and removed in the end."""

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream = stream
        self._width = width
        self._pace = Pace()

    def step(self, step: str, done: int, total: int) -> None:
        if self._pace.is_due(step):
            self._draw(f"{step}{percentage(done, total)} …"[: self._width - 1])

    def finished(self, build_key: str) -> None:
        self._draw("")

    def failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._stream.write(f"\n{STOPPED}\n")  # the terminal wrote ^C behind the line
            self._stream.flush()
        else:
            self._draw("")

    def _draw(self, text: str) -> None:
        self._stream.write(f"\r{text}{CLEAR_TO_END}")
        self._stream.flush()


def _reporter(kind: str) -> Reporter:
    if kind == "json":
        return JsonLines(sys.stdout)
    if kind == "auto" and sys.stderr.isatty():
        import shutil

        return TerminalLine(sys.stderr, shutil.get_terminal_size().columns)
    return PlainLines(sys.stderr)
