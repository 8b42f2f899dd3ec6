"""What a failure looks like, whatever the command."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetchat import __version__
from fleetchat.cli.main import explain, main
from fleetchat.cli.output import LOG_LIMIT, configure_streams, log_exception
from fleetchat.errors import ConfigError, FleetchatError, PeerLost
from fleetchat.paths import log_folder

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path / "state"))


def stderr_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def run_module(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleetchat", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("STATE", "ask hi"),
        ("STATE", "chats list"),
        ("STATE", "--plain"),
        ("CACHE", "ask hi"),
        ("CACHE", "shards build smollm2-135m"),
        ("CONFIG", "fleet key"),
        ("CONFIG", "fleet add local"),
    ],
)
def test_a_folder_that_cannot_be_written_is_the_users_to_change(
    variable: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv(f"FLEETCHAT_{variable}_DIR", str(tmp_path / "file" / "ours"))
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("error: ")
    assert f"{tmp_path / 'file' / 'ours'}" in lines[-2]
    assert "cannot be written: " in lines[-2]
    assert f"FLEETCHAT_{variable}_DIR names it" in lines[-1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"fleetchat {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n    {name} " in text for name in ("ask", "peer", "shards", "paths"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["pahts"], "error: there is no command 'pahts'; the nearest is 'paths'"),
        (["zzzzzz"], "error: there is no command 'zzzzzz'"),
        (["paths", "--jsno"], "error: there is no option --jsno; the nearest is '--json'"),
        (["paths", "--jsno=1"], "error: there is no option --jsno; the nearest is '--json'"),
        (["paths", "--js"], "error: there is no option --js; the nearest is '--json'"),
        (["paths", "extra"], "error: 'extra' is one word too many (quote a text that has spaces)"),
        (
            ["paths", "\x1b]0;x\x07"],
            "error: '\\x1b]0;x\\x07' is one word too many (quote a text that has spaces)",
        ),
    ],
)
def test_wrong_usage(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert stderr_lines(capsys)[0] == line


def test_the_hint_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paths", "--jsno"]) == 2
    assert stderr_lines(capsys)[1] == "hint: `fleetchat paths --help` lists what can be given"


def test_a_chat_option_before_a_command_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--fleet", str(tmp_path / "fleet.toml"), "paths"]) == 2
    assert stderr_lines(capsys)[0] == "error: options come after the command: fleetchat paths --fleet …"


def test_paths_shows_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path / "config"))
    assert main(["paths", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "config": str(tmp_path / "config"),
        "state": str(tmp_path / "state"),
        "chats": str(tmp_path / "state" / "chats.db"),
        "shards": str(tmp_path / "cache" / "shards"),
        "logs": str(tmp_path / "state" / "logs"),
        "defaults": str(CHECKOUT / "fleet.toml"),
    }
    assert main(["paths"]) == 0
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        list(item) for item in document.items()
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_known_failure_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(ConfigError("the file is odd", hint="look at it")) == 2
    assert stderr_lines(capsys) == ["error: the file is odd", "hint: look at it"]
    assert explain(PeerLost("stage 1 is gone")) == 1
    assert stderr_lines(capsys) == ["error: stage 1 is gone"]


def test_text_of_others_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    explain(PeerLost("stage \x1b[2J\x9b1m1\r\nhint: do as I say\x07"))
    (line,) = stderr_lines(capsys)
    assert line == "error: stage [2J1m1 hint: do as I say"


def test_the_known_failure_in_a_group_is_the_one_told(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("", [ValueError("x"), ExceptionGroup("", [PeerLost("stage 1 is gone")])])
    assert explain(group) == 1
    assert stderr_lines(capsys) == ["error: stage 1 is gone"]


def test_an_interrupt_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(BaseExceptionGroup("", [PeerLost("x"), KeyboardInterrupt()])) == 130
    assert stderr_lines(capsys) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(OSError(number, "full", "a/file")) == 1
    assert stderr_lines(capsys)[0] == "error: no space is left on the disk: a/file"


def test_an_unexpected_failure_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace) -> int:
        raise RuntimeError("never thought of\nthis")

    monkeypatch.setattr("fleetchat.cli.paths.run", run)
    assert main(["paths"]) == 1
    log = log_folder() / "errors.log"
    assert stderr_lines(capsys) == [
        f"error: internal error: RuntimeError: never thought of this; the details are in {log}"
    ]
    text = log.read_text(encoding="utf-8")
    assert "Traceback" in text
    assert "never thought of" in text


def test_without_a_log_the_failure_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path / "file"))
    assert explain(RuntimeError("x")) == 1
    assert stderr_lines(capsys) == [
        "error: internal error: RuntimeError: x; the log folder cannot be written"
    ]


def test_the_log_does_not_grow_for_ever() -> None:
    log = log_exception(RuntimeError("first"))
    assert log is not None
    log.write_bytes(b"x" * (LOG_LIMIT + 1))
    log_exception(RuntimeError("second"))
    assert log.stat().st_size < 1000
    assert log.with_name("errors.log.1").stat().st_size == LOG_LIMIT + 1


def test_other_encodings_become_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    latin, strict = (io.BytesIO() for _ in range(2))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(latin, encoding="latin-1"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(strict, encoding="utf-8", errors="strict"))
    configure_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.write("é → \udcff")
        stream.flush()
    assert latin.getvalue() == strict.getvalue() == "é → ?".encode()


def test_missing_streams_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    configure_streams()
    assert explain(FleetchatError("x")) == 1


@pytest.mark.slow
def test_an_ascii_locale_does_not_break_the_output() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "FLEETCHAT_CONFIG_DIR": "é"}
    done = run_module("paths", env=environment, encoding="utf-8")
    assert done.returncode == 0
    assert f"{CHECKOUT / 'é'}\n" in done.stdout


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "fleetchat", "paths"]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 1
