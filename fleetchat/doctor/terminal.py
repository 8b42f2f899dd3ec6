"""The terminal that the chat would draw on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from fleetchat.doctor.finding import Finding, ok, skipped, warn

NAME = "terminal"
LEAST_COLUMNS, LEAST_LINES = 60, 16  # below that the chat works, but shows little of itself


def terminal_size(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Columns and lines as Textual takes them: COLUMNS and LINES first; None without a terminal."""
    told = tuple(_positive(environment.get(name, "")) for name in ("COLUMNS", "LINES"))
    measured = _measured()
    if measured is None:
        return (told[0], told[1]) if all(told) else None
    return told[0] or measured[0], told[1] or measured[1]


def check_terminal(size: tuple[int, int] | None, environment: Mapping[str, str], *, windows: bool) -> Finding:
    """Is it large enough, and can a screen be drawn on it?"""
    if size is None:
        return skipped(NAME, "not checked: stdin, stdout and stderr are no terminal")
    text = f"{size[0]}x{size[1]} characters, {colours(environment)}"
    kind = environment.get("TERM", "")
    if not windows and kind in {"", "dumb"}:
        named = f"TERM={kind}" if kind else "TERM is not set"
        return warn(
            NAME,
            f"{text}; {named}: no screen can be drawn",
            "use another terminal, or export TERM=xterm-256color; `fleetchat ask` needs neither",
        )
    if size[0] < LEAST_COLUMNS or size[1] < LEAST_LINES:
        return warn(
            NAME,
            f"{text}: too small, the chat wants at least {LEAST_COLUMNS}x{LEAST_LINES}",
            "make the window larger or its letters smaller; `fleetchat ask` needs no space",
        )
    return ok(NAME, text)


def colours(environment: Mapping[str, str]) -> str:
    """How many colours the chat will use."""
    if environment.get("NO_COLOR"):
        return "no colours (NO_COLOR is set)"
    if environment.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        return "24-bit colours"
    return "256 colours" if "256color" in environment.get("TERM", "") else "16 colours, or 24-bit if it can"


def _measured() -> tuple[int, int] | None:
    for descriptor in (1, 2, 0):
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(descriptor)
            if size.columns and size.lines:
                return size.columns, size.lines
    return None


def _positive(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
