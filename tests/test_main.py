"""How the program ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import atexit, sys, threading
import fleetchat.__main__ as program, fleetchat.cli.main as command_line
from fleetchat.child import ABANDONABLE

def run(arguments):
    threading.Thread(target=threading.Event().wait, name=sys.argv[1], daemon=True).start()
    print("said", end="")
    return 130

command_line.main = run
atexit.register(print, " and taken down", end="")
program.main()
"""


@pytest.mark.parametrize(
    ("name", "said"), [("abandonable", "said"), ("of no interest", "said and taken down")]
)
def test_a_thread_that_loads_does_not_hold_up_the_end(name: str, said: str) -> None:
    """The interpreter is not taken down under it: that would crash."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, said, "")
