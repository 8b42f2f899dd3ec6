"""A program in a terminal of its own: it is typed to, and what it writes is watched for. POSIX only."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetchat.errors import FleetchatError

KEPT = 1 << 16  # bytes of what was written


class Terminal:
    """Runs a command. Everything it writes is read at once, by a thread, so that it never waits for us."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        columns: int,
        rows: int,
        sought: str = "",
    ) -> None:
        """`sought` is watched for from the first byte on.

        Raises FleetchatError where there are no such terminals.
        """
        try:
            import fcntl
            import pty
            import termios
        except ImportError:
            raise FleetchatError("a chat in a terminal can be measured on Linux and macOS only") from None
        self._file, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        told = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=told, start_new_session=True
        )
        os.close(inside)
        self._changed = threading.Condition()
        self._written = b""
        self._sought = sought.encode()
        self._seen_at: float | None = None
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def seek(self, text: str) -> None:
        """Watch for `text` from now on."""
        with self._changed:
            self._written, self._sought, self._seen_at = b"", text.encode(), None

    def wait_seen(self, seconds: float) -> float:
        """When what was sought was written, on `time.perf_counter`. Raises FleetchatError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._seen_at is not None, seconds):
                sought = self._sought.decode()
                raise FleetchatError(f"the chat did not show {sought!r} within {seconds:g} s")
            assert self._seen_at is not None
            return self._seen_at

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def echo(self, letter: str, seconds: float = 20.0) -> float:
        """Seconds until a letter that stands nowhere yet is written back."""
        self.seek(letter)
        began = time.perf_counter()
        self.type(letter)
        return self.wait_seen(seconds) - began

    def close(self, goodbye: str, seconds: float = 10.0) -> None:
        """End the program by its own key; by force when it stays."""
        if self.process.poll() is None:
            self.type(goodbye)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._file)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._file, 65536)
            except OSError:  # Linux's way of telling that the other side is closed
                return
            if not chunk:
                return
            now = time.perf_counter()
            with self._changed:
                self._written = (self._written + chunk)[-KEPT:]
                if self._seen_at is None and self._sought and self._sought in self._written:
                    self._seen_at = now
                    self._changed.notify_all()


def cpu_seconds(process: int) -> float:
    """Processor time of a process and its threads so far. Raises FleetchatError without /proc."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        raise FleetchatError("processor time is read from /proc, which is not there") from None
    return cpu_of(text, os.sysconf("SC_CLK_TCK"))


def cpu_of(stat: str, ticks: int) -> float:
    """utime + stime of a line of /proc/PID/stat; the name in brackets may hold anything."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks


def resident_bytes(process: int) -> int:
    """Memory that a process holds. Raises FleetchatError without /proc."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        raise FleetchatError("memory is read from /proc, which is not there") from None
    return pages * os.sysconf("SC_PAGE_SIZE")
