"""What the operating system says of itself in text: files such as those of /proc, and small programs."""

from __future__ import annotations

import subprocess
from pathlib import Path


def text_of(path: Path) -> str:
    """The file's text without the blanks around it; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def output_of(*command: str) -> str:
    """What the program printed; empty when there is no such program, or when it takes more than 5 s."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
