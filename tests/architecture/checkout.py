"""The files of this checkout, and a copy of the package in which a test may plant a mistake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def tracked_files() -> list[Path]:
    """Files under version control, relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (CHECKOUT / name).exists()]


def copy_package(target: Path) -> Path:
    """Copy what is imported and its contracts; returns the package's folder."""
    shutil.copy(CHECKOUT / "pyproject.toml", target)
    shutil.copy(CHECKOUT / "fleet.toml", target)
    return Path(
        shutil.copytree(
            CHECKOUT / "fleetchat", target / "fleetchat", ignore=shutil.ignore_patterns("__pycache__")
        )
    )


def run_python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A clean interpreter that imports the package from `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
