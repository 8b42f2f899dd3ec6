"""The question before a `./fleet.toml` that names peers is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.cli.output import print_diagnostic

if TYPE_CHECKING:
    from fleetchat.config import Confirm


def terminal_confirmation() -> Confirm | None:
    """How to ask the user; None when nobody sits at a terminal. For `fleetchat.config.load`."""
    streams = (sys.stdin, sys.stderr)
    return ask_user if all(stream is not None and stream.isatty() for stream in streams) else None


def ask_user(file: Path, peers: tuple[str, ...]) -> bool:
    """Ask on stderr, read one line. Anything but a yes is a no."""
    print_diagnostic(f"{file} sends your chats to the peers {', '.join(peers)}.")
    print("Use this file, now and as long as it stays as it is? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
