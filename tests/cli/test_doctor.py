"""`fleetchat doctor` on a pipe and on a terminal, and its exit codes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fleetchat.cli.main import main
from tests.doctor.set_up import SetUp

DURATION = r"(\d+ ms|\d+\.\d s)"
LINE = re.compile(rf"(ok|warn|fail|skipped) {{2,}}{DURATION}? {{2,}}\S+")
NO_NETWORK = {"PIP_NO_INDEX": "1", "TERM": "xterm-256color"}


@pytest.fixture
def set_up(tmp_path: Path) -> SetUp:
    """Nothing configured, nothing built."""
    return SetUp(tmp_path)


@pytest.mark.e2e
@pytest.mark.slow
def test_in_a_pipe_each_text_is_one_plain_line(set_up: SetUp) -> None:
    process = set_up.process("doctor", environment=NO_NETWORK)
    out, err = (stream.decode() for stream in process.communicate(timeout=170))
    assert (process.returncode, err) == (1, "")
    lines = out.splitlines()
    assert "\x1b" not in out
    assert sum(bool(LINE.match(line)) for line in lines) >= 15
    assert any(line.startswith("         to do: check network, proxy and pip's settings") for line in lines)
    assert re.fullmatch(
        rf"1 failure, 1 warning, \d+ ok, \d+ skipped, in {DURATION}; begin with: download", lines[-1]
    )


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="opens a pseudo-terminal")
def test_on_a_terminal_of_80_columns_nothing_is_wider(set_up: SetUp) -> None:
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = set_up.process("doctor", environment=NO_NETWORK, stdout=slave)
    os.close(slave)
    received = b""
    try:
        while chunk := os.read(master, 65536):
            received += chunk
    except OSError:  # Linux ends the reading of a terminal without writers so
        pass
    process.communicate(timeout=170)
    os.close(master)
    lines = received.decode().replace("\r\n", "\n").splitlines()
    whole_words = [line for line in lines if str(set_up.folder) not in line]  # a path is never cut
    assert max(map(len, whole_words)) <= 80
    assert any(line.endswith("80x24 characters, 256 colours") for line in lines)
    assert "begin with: download" in lines[-1]


def test_wrong_usage_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--jsno"]) == 2
    assert "the nearest is '--json'" in capsys.readouterr().err


def test_an_option_that_cannot_be_used_is_a_finding(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetchat.doctor.devices import Probed

    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"FLEETCHAT_{name.upper()}_DIR", str(set_up.folder / name))
    monkeypatch.setattr("fleetchat.doctor.devices.probe", lambda threads: Probed("0", ()))
    assert main(["doctor", "--stages", "0"]) == 1
    assert "command line: --stages must be" in capsys.readouterr().out
