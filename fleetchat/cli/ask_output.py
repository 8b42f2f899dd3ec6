"""How `ask` writes: answers to stdout without ever blocking the links, progress to stderr."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TextIO

import trio

Write = Callable[[str], None]

SEPARATOR = "\n---\n\n"  # between two answers


def write_stdout(text: str) -> None:
    """Write `text` to stdout at once. Raises BrokenPipeError when the reader has gone.

    The descriptor is written directly: this runs in a thread that may be left behind in mid-write,
    and then must not hold the lock of Python's buffer. Only a Windows console needs Python's own way.
    """
    if sys.stdout is None:
        return
    if sys.platform == "win32" and sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # stdout is an object of a test or of an embedding program
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    remaining = memoryview(text.encode("utf-8", "replace"))
    while remaining:
        try:
            remaining = remaining[os.write(descriptor, remaining) :]
        except BlockingIOError:  # somebody made our stdout non-blocking
            time.sleep(0.01)


class AnswerWriter:
    """Text in from the trio thread, written by a thread: a slow reader delays nothing but itself."""

    def __init__(self, write: Write = write_stdout) -> None:
        self._write = write
        self._pending: deque[str | Callable[[], None]] = deque()
        self._last = ""
        self._writing = False
        self._closed = False
        self._more = trio.Event()
        self._written = trio.Event()

    def put(self, text: str) -> None:
        """Have `text` written soon."""
        if text:
            self._pending.append(text)
            self._last = text[-1]
            self._more.set()

    def then(self, action: Callable[[], None]) -> None:
        """Do `action` on the trio thread as soon as all before it is written: what stderr says in between."""
        self._pending.append(action)
        self._more.set()

    def end_answer(self) -> None:
        """End the last line of an answer, if it is not ended."""
        if self._last not in {"", "\n"}:
            self.put("\n")

    def separate(self) -> None:
        """Mark where the next answer begins."""
        self.put(SEPARATOR)

    async def run(self) -> None:
        """Write until `close`. Raises BrokenPipeError when nobody reads any more."""
        while self._pending or not self._closed:
            if not self._pending:
                await self._more.wait()
                self._more = trio.Event()
                continue
            await self._write_until_action()
            self._written.set()
            self._written = trio.Event()

    async def _write_until_action(self) -> None:
        text = ""
        while self._pending and isinstance(piece := self._pending[0], str):
            text += piece
            self._pending.popleft()
        if text:
            self._writing = True
            await trio.to_thread.run_sync(self._write, text, abandon_on_cancel=True)
            self._writing = False
        elif callable(action := self._pending.popleft()):
            action()

    @property
    def idle(self) -> bool:
        """Whether all that was put is written."""
        return not self._pending and not self._writing

    async def flush(self) -> None:
        """Wait until everything that was put is written."""
        while not self.idle:
            await self._written.wait()

    async def close(self) -> None:
        """Flush, and let `run` end."""
        self._closed = True
        self._more.set()
        await self.flush()


class Progress(Protocol):
    """Where steps are shown."""

    def step(self, text: str, done: int = 0, total: int = 0) -> None:
        """Something under way; `total` 0 means that the end is not known."""

    def passing(self, text: str) -> None:
        """Something short, shown only where it can be overwritten."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def stop(self, text: str) -> None:
        """A line that stays, after a Ctrl+C that the terminal may have written into the line before."""

    def clear(self) -> None:
        """Remove what may be removed: an answer follows."""


class LineProgress:
    """For a pipe or a file: one plain line when a step begins.

    The very first report waits for the second: when the shards are there already, a check of them is
    all that is reported, and a script's stderr stays empty.
    """

    def __init__(self, print_line: Write) -> None:
        self._print_line = print_line
        self._reports = 0
        self._last = ""

    def step(self, text: str, done: int = 0, total: int = 0) -> None:
        self._reports += 1
        if self._reports == 2:
            self._print_line(self._last)
        if self._reports > 1 and text != self._last:
            self._print_line(text)
        self._last = text

    def passing(self, text: str) -> None:
        """Nothing: it would stay in the file."""

    def say(self, text: str) -> None:
        self._print_line(text)

    def stop(self, text: str) -> None:
        self._print_line(text)

    def clear(self) -> None:
        """Nothing: lines stay."""


class TerminalProgress:
    """For a terminal: one line that is written over, gone before an answer begins."""

    def __init__(self, stream: TextIO, columns: Callable[[], int], safe: Callable[[str], str]) -> None:
        self._stream = stream
        self._columns = columns
        self._safe = safe
        self._shown = 0

    def step(self, text: str, done: int = 0, total: int = 0) -> None:
        share = f" {100 * min(done, total) // total:3d} %" if total > 0 else " …"
        self._show(text, share)

    def passing(self, text: str) -> None:
        self._show(text, "")

    def say(self, text: str) -> None:
        self.clear()
        self._stream.write(" ".join(self._safe(text).split()) + "\n")
        self._stream.flush()

    def stop(self, text: str) -> None:
        if self._shown:
            self._stream.write("\n")
            self._shown = 0
        self.say(text)

    def clear(self) -> None:
        self._show("", "")

    def _show(self, text: str, ending: str) -> None:
        room = max(0, self._columns() - 1 - len(ending))
        line = " ".join(self._safe(text).split())[:room] + ending
        if not line and not self._shown:
            return
        back = "\r" if line else f"\r{' ' * self._shown}\r"
        self._stream.write(back + line.ljust(self._shown if line else 0))
        self._stream.flush()
        self._shown = len(line)


def progress_on_stderr() -> Progress:
    """The kind of progress that fits stderr."""
    import shutil

    from fleetchat.chat.sanitise import sanitise
    from fleetchat.cli.output import print_diagnostic

    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalProgress(sys.stderr, lambda: shutil.get_terminal_size().columns, sanitise)
    return LineProgress(print_diagnostic)
