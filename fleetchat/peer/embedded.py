"""A peer that belongs to one chat process: how it is started, and how it ends.

Command line (the order does not matter; every path absolute)::

    [sys.executable, "-m", "fleetchat", "peer", "--embedded",
     "--store", STORE_FOLDER,      # where the builds are
     "--threads", "N",             # inference threads of this stage
     "--log", LOG_FILE,            # rotated; never holds chat text
     "--device", "CPU",            # optional, default CPU
     "--kv-cells", "N",            # optional, default: from the free memory
     "--cores", "0,1"]             # optional: pin the process to these cores

stdin:  one line, the one-time key as 64 hex digits, then a line feed. The parent then keeps the pipe
        open and writes nothing more. End of file ends the process at once (`os._exit`), whatever it
        is doing: so it dies with its parent, also after SIGKILL, on every system.
stdout: exactly one line of JSON, then nothing ever again:
            {"port": 40123}                                it listens on 127.0.0.1, this port
            {"error": TEXT, "hint": TEXT or null, "exit": N}   it could not start; it exits with N
        End of file without a line: the process died at import; its log has the reason.
stderr: taken over by the log as soon as the log is open; give it DEVNULL or a pipe that is read.

The parent starts it in a process group of its own (`child.own_process_group`), so that
Ctrl+C in the terminal does not reach it; SIGINT is ignored here as well. It listens about 0.3 s after
it was started, before OpenVINO is imported; OpenVINO and the shard are loaded by the OPEN of the chain.
All stages of one chain get the same key: they dial each other with it.

To stop one: GOODBYE on the control link (frees the chain), then close stdin. Exit code 0.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from fleetchat.errors import FleetchatError, InputError

KEY_BYTES = 32
LOG_BYTES = 1_000_000  # one log file; with the three older ones 4 MB a stage at most
LOG_FILES = 3


def read_key_line(stdin: TextIO) -> bytes:
    """The one-time key from the first line of stdin. Raises InputError on anything else."""
    line = stdin.readline().strip()
    try:
        key = bytes.fromhex(line)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(
            f"the embedded peer wants its key on stdin as {2 * KEY_BYTES} hexadecimal digits",
            hint="--embedded is for the chat process; to serve shards run: fleetchat peer",
        )
    return key


def end_with_parent(stdin: TextIO) -> None:
    """End this process when stdin reaches its end of file, from a thread of its own.

    A blocking read is the one thing that works on every system, in mid-inference (OpenVINO lets go
    of the interpreter lock) and after SIGKILL of the parent. Nothing has to be tidied up: the
    process owns no file and no child.
    """

    def wait_for_end_of_file() -> None:
        try:
            while stdin.buffer.read(4096):
                pass
        finally:
            os._exit(0)

    threading.Thread(target=wait_for_end_of_file, name="parent-watch", daemon=True).start()


def announce(stdout: TextIO, *, port: int) -> None:
    """Tell the parent where we listen, then never write to stdout again."""
    print(json.dumps({"port": port}), file=stdout, flush=True)


def announce_failure(stdout: TextIO, error: FleetchatError) -> None:
    """Tell the parent why there is no port."""
    document = {"error": error.message, "hint": error.hint, "exit": int(error.exit_code)}
    print(json.dumps(document), file=stdout, flush=True)


class StderrLog(logging.handlers.RotatingFileHandler):
    """A rotated log that file descriptor 2 follows, so that native libraries write to it too."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._take_stderr()

    def doRollover(self) -> None:
        """Rotate. Windows does not rename a file that is open: stderr lets go of it first."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        super().doRollover()
        self._take_stderr()

    def _take_stderr(self) -> None:
        if self.stream is not None:
            os.dup2(self.stream.fileno(), 2)


def log_to(path: Path) -> None:
    """Send the log of fleetchat, warnings and uncaught errors to `path`. Never chat text."""
    handler = StderrLog(path)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115


def pin_to(cores: frozenset[int]) -> bool:
    """Pin the process to `cores`. False where the system cannot (macOS, Windows): then nothing is done."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, cores)
    return True
