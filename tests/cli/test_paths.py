"""`fleetchat paths --logs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetchat.cli.main import main

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "chat.log").write_text("one\ntwo\nthree \x1b[31mred\n" * 100, encoding="utf-8")
    return folder


def test_logs_with_size_and_age(logs: Path, capsys: Printed) -> None:
    assert main(["paths", "--logs"]) == 0
    size, unit, age, seconds, ago, path = capsys.readouterr().out.split()
    assert (size, unit, seconds, ago) == ("2.3", "kB", "s", "ago")
    assert int(age) <= 60
    assert path == str(logs / "chat.log")


def test_last_lines_without_control_characters(logs: Path, capsys: Printed) -> None:
    assert main(["paths", "--logs", "--tail", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["    two", "    three [31mred"]


def test_for_programs(logs: Path, capsys: Printed) -> None:
    assert main(["paths", "--logs", "--json", "--tail", "1"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["path"] == str(logs / "chat.log")
    assert entry["bytes"] == (logs / "chat.log").stat().st_size
    assert entry["tail"] == ["three \x1b[31mred"]


def test_no_logs_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path / "none"))
    assert main(["paths", "--logs"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"there are no logs yet in {tmp_path / 'none' / 'logs'}\n"


@pytest.mark.parametrize("arguments", [["--tail", "3"], ["--logs", "--tail", "0"]])
def test_lines_are_of_logs(arguments: list[str], capsys: Printed) -> None:
    assert main(["paths", *arguments]) == 2
    assert "it goes with --logs" in capsys.readouterr().err
