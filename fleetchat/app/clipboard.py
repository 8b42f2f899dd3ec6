"""Copying, honestly: the system's own tool where there is one, else the terminal, which never answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

TIMEOUT = 1.0  # seconds

Run = Callable[[Sequence[str], bytes], bool]


def tools(platform: str, environment: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Commands that put their input on the clipboard of this system, the best first (pure).

    None over ssh: the clipboard there is another machine's.
    """
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return []
    if platform == "darwin":
        return [("pbcopy",)]
    if platform == "win32":
        return [("clip",)]
    found: list[tuple[str, ...]] = []
    if environment.get("WAYLAND_DISPLAY"):
        found.append(("wl-copy",))
    if environment.get("DISPLAY"):
        found += [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")]
    return found


def run_tool(command: Sequence[str], content: bytes) -> bool:
    """Whether the tool is there and took the content."""
    try:
        done = subprocess.run(
            command,
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def copied_by(text: str, environment: Mapping[str, str], run: Run = run_tool) -> str | None:
    """The tool that copied `text`; None when the terminal must be asked instead."""
    content = text.encode("utf-16-le" if sys.platform == "win32" else "utf-8", "replace")
    for command in tools(sys.platform, environment):
        if run(command, content):
            return command[0]
    return None
