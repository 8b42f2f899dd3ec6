"""`fleetchat ask` as a process of its own, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "FLEETCHAT_STATE_DIR"  # every process that the program starts carries this folder


@dataclass(frozen=True)
class AskProcess:
    """Runs the command with its own configuration, state and cache below `folder`."""

    folder: Path
    recipe: str

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCHAT_")}
        folders = {f"FLEETCHAT_{name}_DIR": str(self.folder / name) for name in ("CACHE", "STATE", "CONFIG")}
        folders["FLEETCHAT_FAST_SETTINGS"] = "default"
        return {**inherited, **folders, "PYTHONPATH": str(Path(__file__).parents[2])}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it with pipes on all three streams."""
        command = [sys.executable, "-m", "fleetchat", "ask", "--recipe", self.recipe, *arguments]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
        )

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        process = self.start(*arguments)
        out, err = process.communicate(stdin.encode(), timeout=170)
        return process.returncode, out.decode(), err.decode()

    def document(self, *arguments: str) -> dict[str, Any]:
        """What `--json` prints, of a run that succeeds."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    def leftovers(self) -> list[str]:
        """Processes that the program started and that still run."""
        mark = f"{MARK}={self.folder / 'STATE'}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has ended meanwhile
                continue
        return found

    def wait_until_nothing_is_left(self, seconds: float) -> None:
        """Fails when something still runs after that time."""
        deadline = time.monotonic() + seconds
        while left := self.leftovers():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.02)
