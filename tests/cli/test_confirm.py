"""Asking about a strange `fleet.toml`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from fleetchat.cli.confirm import ask_user, terminal_confirmation


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "used"), [("y\n", True), (" YES \n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_only_a_yes_is_a_yes(
    typed: str, used: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert ask_user(Path("here") / "fleet.toml", ("left (127.0.0.1:7077)", "\x1b[2Jlocal")) is used
    captured = capsys.readouterr()
    assert captured.out == ""
    question = (
        f"{Path('here') / 'fleet.toml'} sends your chats to the peers left (127.0.0.1:7077), [2Jlocal.\n"
    )
    assert captured.err.startswith(question)


@pytest.mark.parametrize(
    ("stdin", "stderr", "asked"),
    [
        (Terminal(), Terminal(), True),
        (io.StringIO(), Terminal(), False),
        (Terminal(), io.StringIO(), False),
        (None, None, False),
    ],
)
def test_nobody_is_asked_without_a_terminal(
    stdin: io.StringIO | None, stderr: io.StringIO | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert (terminal_confirmation() is not None) is asked
