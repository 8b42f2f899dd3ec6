"""How fleetchat starts itself again as a child process (a peer, a build)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ABANDONABLE = "abandonable"
"""Name of a thread that is not waited for when the program ends, though a library computes on it."""


def child_command(*arguments: str) -> list[str]:
    """The command that runs `fleetchat ARGUMENTS` with this interpreter.

    `-P` keeps the current folder out of the module path, so that a strange folder's files are never
    run.
    """
    return [sys.executable, "-P", "-m", "fleetchat", *arguments]


def child_environment() -> dict[str, str]:
    """This process's environment, with fleetchat importable also when it runs from a checkout."""
    environment = dict(os.environ)
    package_parent = Path(__file__).resolve().parent.parent
    if package_parent.name not in {"site-packages", "dist-packages"}:
        inherited = environment.get("PYTHONPATH")
        paths = [str(package_parent), *([inherited] if inherited else [])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def own_process_group() -> dict[str, object]:
    """Arguments of `subprocess.Popen` that keep the terminal's Ctrl+C away from a child.

    No session of its own: a group whose last link to its session has died is told so by the system (SIGHUP),
    which ends also a child that was stopped by a signal and sees no end of file.
    """
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def run_child(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a child of ours to its end: its exit code, and what it said on stderr.

    Its stdin stays open and empty: the end of it, which comes with ours, tells the child to end.
    """
    options: dict[str, object] = {**own_process_group(), "env": dict(environment)}
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        **options,  # type: ignore[call-overload]
    )
    try:
        # not communicate(): it would close stdin
        said = process.stderr.read()
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stderr):
            stream.close()
        process.wait()
    return process.returncode, said
