"""Writing a message in the user's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleetchat.chat.sanitise import sanitise
from fleetchat.errors import FleetchatError


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """What $VISUAL or $EDITOR says, else what the system has (pure)."""
    named = environment.get("VISUAL") or environment.get("EDITOR")
    if named:
        return shlex.split(named, posix=os.name != "nt")
    return ["notepad" if os.name == "nt" else "vi"]


def edited(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """`text` after the user wrote in it. The file is the user's alone, and removed. Raises FleetchatError."""
    command = editor_command(environment)
    descriptor, name = tempfile.mkstemp(prefix="fleetchat-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        code = subprocess.run([*command, name], check=False).returncode
        if code:
            raise FleetchatError(f"the editor {command[0]} ended with {code}; the text is as it was")
        return sanitise(path.read_text(encoding="utf-8", errors="replace")).rstrip("\n")
    except OSError as error:
        raise FleetchatError(
            f"the editor {command[0]} cannot be started: {error.strerror}", hint="set EDITOR"
        ) from error
    finally:
        path.unlink(missing_ok=True)
