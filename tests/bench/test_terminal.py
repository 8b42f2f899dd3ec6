"""A program in a terminal: seen, typed to, ended."""

from __future__ import annotations

import os
import sys

import pytest

from fleetchat.bench.terminal import Terminal, cpu_seconds, resident_bytes
from fleetchat.errors import FleetchatError

ECHO = """
import sys
print("ready" * sys.stdin.isatty(), flush=True)
print("got " + input(), flush=True)
input()
"""


def test_what_is_written_is_seen_and_what_is_typed_arrives() -> None:
    terminal = Terminal([sys.executable, "-c", ECHO], os.environ, columns=80, rows=24, sought="ready")
    terminal.wait_seen(30)
    assert terminal.echo("Ꭰ", 30) > 0
    terminal.seek("got Ꭰ")
    terminal.type("\n")
    terminal.wait_seen(30)
    assert cpu_seconds(terminal.process.pid) >= 0
    assert resident_bytes(terminal.process.pid) > 1 << 20
    terminal.close("\n", 30)
    assert terminal.process.returncode == 0


def test_what_never_comes_is_told_and_a_program_that_stays_is_ended() -> None:
    code = "print('up', flush=True)\nwhile True: input()"
    terminal = Terminal([sys.executable, "-c", code], os.environ, columns=80, rows=24, sought="up")
    terminal.wait_seen(30)
    terminal.seek("never")
    with pytest.raises(FleetchatError, match="did not show 'never'"):
        terminal.wait_seen(0.01)
    terminal.close("x", 0.05)
    assert terminal.process.returncode == -9


def test_a_process_that_is_not_there_has_no_figures() -> None:
    with pytest.raises(FleetchatError, match="not there"):
        cpu_seconds(2**22 + 1)
    with pytest.raises(FleetchatError, match="not there"):
        resident_bytes(2**22 + 1)
