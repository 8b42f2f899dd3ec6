"""The installed program in a real terminal: ask, read, leave, and nothing is left behind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetchat.app.panel.layout import SIDE_FROM

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="a terminal that can be read needs tmux"),
]

START = 150.0  # seconds: a first run fetches and builds
REPLY = 60.0
EXIT = 4.0  # the program and its status file; tests/app/test_leaving.py proves that a user waits 2 at most
LEFT = 3.0  # until no process is there any more, also after SIGKILL
MARK = "FLEETCHAT_STATE_DIR"  # every process of the test carries a value of its own


@dataclass
class Terminal:
    """A tmux server of its own with one window; `folder` holds what the program writes."""

    folder: Path
    editor: str = ""

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-f", os.devnull, "-S", str(self.folder / "tmux"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def open(self, width: int, height: int, *options: str) -> None:
        environment = {
            MARK: str(self.folder / "state"),
            "FLEETCHAT_SAMPLING_TEMPERATURE": "0",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        if self.editor:
            environment["EDITOR"] = self.editor
        program = shlex.join([sys.executable, "-m", "fleetchat", *options])
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        # pytest imports readline, and that sets the size of pytest's own terminal in every child.
        # The shell stays: what the program made of its terminal can be looked at.
        script = (
            f"cd {shlex.quote(str(self.folder))}; unset COLUMNS LINES; stty -a > stty.before; "
            f"{assignments} {program}; status=$?; stty -a > stty.after; echo $status > status; exec sleep 600"
        )
        (self.folder / "status").unlink(missing_ok=True)
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), script)
        self.wait_for("Type a message, Enter sends")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait(self, condition: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"never came true; the screen shows:\n{self.screen()}"
            time.sleep(0.05)

    def wait_for(self, text: str, seconds: float = REPLY) -> None:
        self.wait(lambda: text in self.screen(), seconds)

    def shows(self, check: Callable[[list[str]], None], seconds: float = REPLY) -> None:
        """Wait for a screen of which all holds that `check` asserts.

        Text that is there says nothing of the figures beside it: those are drawn four times a second, a dash
        stands where nothing was measured yet, and tmux may be read in the middle of a frame.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return check(self.screen().splitlines())
            except (AssertionError, ValueError, LookupError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def wait_left(self, status: int) -> None:
        """The program has ended so, nothing of it runs, and the terminal is as it was."""
        self.wait(lambda: self.exit_status() == str(status), EXIT)
        self.wait(lambda: not self.processes(), LEFT)
        before, after = ((self.folder / f"stty.{when}").read_text() for when in ("before", "after"))
        assert after == before
        flags = "alternate_on", "mouse_any_flag", "mouse_sgr_flag", "keypad_flag"
        shown = self.tmux("display-message", "-p", " ".join(f"#{{{flag}}}" for flag in flags))
        assert shown.split() == ["0"] * len(flags)
        assert self.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def chat_process(self) -> int:
        """The program, its peers left out."""
        return next(
            number
            for number, line in self.processes().items()
            if "-m fleetchat" in line and " peer " not in line
        )

    def exit_status(self) -> str:
        file = self.folder / "status"
        return file.read_text(encoding="ascii").strip() if file.exists() else ""

    def processes(self) -> dict[int, str]:
        """Process number and command line of everything that the program started, itself included."""
        mark = f"{MARK}={self.folder / 'state'}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = command.decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
        return found


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.tmux("kill-server")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("width", "height"), [(140, 40), (80, 24)])
def test_a_stranger_asks_and_leaves(terminal: Terminal, width: int, height: int) -> None:
    terminal.open(width, height)
    terminal.wait_for("fast", START)
    terminal.keys("What is the capital of France?", "Enter")
    terminal.wait_for("finished")
    beside = width >= SIDE_FROM

    def answered(lines: list[str]) -> None:
        assert len(lines) == height
        assert max(map(len, lines)) == width - beside  # the panel beside the chat has a margin
        assert any("Paris" in line for line in lines)
        if beside:
            stages = [
                line.rpartition("│ ")[2].split() for line in lines if re.search(r"│ +[01] +ready ", line)
            ]
            assert [(stage[0], stage[3]) for stage in stages] == [("0", "MB"), ("1", "MB")]
            assert all(float(stage[2]) > 0 for stage in stages)
        else:
            assert any(re.match(r" *2 of 2 stages ready .*tokens/s", line) for line in lines)

    terminal.shows(answered)
    if beside:
        terminal.keys("F9")
        terminal.shows(lambda lines: check_whole_panel(lines, width))
        terminal.keys("Escape")
    terminal.keys("C-q")
    terminal.wait_left(0)


def check_whole_panel(lines: list[str], width: int) -> None:
    """Both stages are there with what they hold and with times that were measured."""
    assert max(map(len, lines)) == width - 1
    tables = [number for number, line in enumerate(lines) if line.split()[:2] == ["Stage", "Address"]]
    table = tables[0]
    first, second, _, times = (line.split() for line in lines[table + 1 : table + 5])
    assert (first[0], second[0]) == ("0", "1")
    assert first[2].startswith("0–")
    assert float(times[1]) > 0
    assert any("tokens/s" in line for line in lines[table + 3 : table + 8])


@pytest.mark.timeout(300)
def test_escape_stops_and_a_second_reply_is_written(terminal: Terminal) -> None:
    terminal.open(100, 30)
    terminal.keys("Write a long story about a lighthouse.", "Enter")
    terminal.wait_for("Writing · Esc stops", START)
    terminal.wait_for("tokens/s")
    terminal.keys("Escape")
    terminal.wait_for("stopped by you", 5)
    terminal.keys("Go on.", "Enter")
    terminal.wait_for("Writing · Esc stops", 5)
    terminal.keys("M-t")  # Alt and a letter is a command, not a letter
    terminal.wait_for("No tab was closed")
    terminal.keys("C-c")
    terminal.wait_for("Press Ctrl+C again", 2)


def press(*keys: str) -> Callable[[Terminal], None]:
    return lambda terminal: terminal.keys(*keys)


def send(number: signal.Signals) -> Callable[[Terminal], None]:
    return lambda terminal: os.kill(terminal.chat_process(), number)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("leave", "status"),
    [
        pytest.param(press("C-q"), 0, id="ctrl-q"),
        pytest.param(press("C-c", "C-c"), 0, id="ctrl-c-twice"),
        pytest.param(send(signal.SIGTERM), 130, id="sigterm"),
        pytest.param(send(signal.SIGHUP), 130, id="sighup"),
    ],
)
def test_leaving_in_the_middle_of_a_reply_keeps_the_text_and_restores_the_terminal(
    terminal: Terminal, leave: Callable[[Terminal], None], status: int
) -> None:
    write_a_story(terminal)
    began = time.monotonic()
    leave(terminal)
    terminal.wait(lambda: terminal.exit_status() == str(status), EXIT)
    assert time.monotonic() - began < 3
    terminal.wait_left(status)
    shown = fleetchat(terminal, "chats", "export")
    assert "Write a long story about a lighthouse." in shown
    assert shown.split("## ")[-1].count("lighthouse") >= 1
    assert "*(stopped)*" in shown


@pytest.mark.timeout(300)
def test_a_terminal_that_is_closed_in_the_middle_of_a_reply_ends_all_and_keeps_the_text(
    terminal: Terminal,
) -> None:
    write_a_story(terminal)
    terminal.tmux("kill-server")
    terminal.wait(lambda: not terminal.processes(), LEFT)
    assert "lighthouse" in fleetchat(terminal, "chats", "export").split("## ")[-1]


def write_a_story(terminal: Terminal) -> None:
    """A reply is under way, and some of it can be read."""
    terminal.open(100, 30)
    terminal.wait_for("fast", START)
    terminal.keys("Write a long story about a lighthouse.", "Enter")
    terminal.wait_for("Writing · Esc stops")
    terminal.wait(lambda: "lighthouse" in terminal.screen().split("SmolLM2 135M Instruct")[-1], REPLY)


@pytest.mark.timeout(300)
def test_a_message_is_written_in_the_user_s_editor(terminal: Terminal) -> None:
    editor = terminal.folder / "editor"
    editor.write_text(
        '#!/bin/sh\nprintf "Editor: "; read word; printf "%s 日本" "$word" >> "$1"\n', encoding="utf-8"
    )
    editor.chmod(0o755)
    terminal.editor = str(editor)
    terminal.open(100, 30)
    terminal.keys("typed here, ", "C-g")
    terminal.wait_for("Editor:")  # it has the terminal to itself,
    os.kill(terminal.chat_process(), signal.SIGCONT)  # also when both are resumed after Ctrl+Z
    terminal.keys("there")
    terminal.wait_for("Editor: there")
    assert terminal.tmux("display-message", "-p", "#{alternate_on}").strip() == "0"
    terminal.keys("Enter")
    terminal.wait_for("typed here, there 日本")
    terminal.keys(" and on")
    terminal.wait_for("typed here, there 日本 and on")
    terminal.wait_for("F1 Help")
    terminal.keys("C-q")
    terminal.wait_left(0)


@pytest.mark.timeout(300)
def test_a_killed_chat_leaves_no_peer(terminal: Terminal) -> None:
    terminal.open(100, 30)
    terminal.wait_for("fast", START)
    terminal.keys("Write a long story about a lighthouse.", "Enter")
    terminal.wait_for("Writing · Esc stops")
    os.kill(terminal.chat_process(), signal.SIGKILL)
    terminal.wait(lambda: not terminal.processes(), LEFT)


@pytest.mark.timeout(300)
def test_after_a_kill_the_next_run_shows_what_was_said(terminal: Terminal) -> None:
    terminal.open(100, 30)
    terminal.wait_for("fast", START)
    terminal.keys("Write a long story about a lighthouse.", "Enter")
    terminal.wait_for("Writing · Esc stops")
    terminal.wait(lambda: "lighthouse" in fleetchat(terminal, "chats", "export").split("## ")[-1], REPLY)
    os.kill(terminal.chat_process(), signal.SIGKILL)
    terminal.wait(lambda: not terminal.processes(), LEFT)
    terminal.tmux("kill-server")
    terminal.open(100, 30)
    terminal.wait_for("interrupted: the program ended while this was written")
    terminal.wait_for("fast", START)
    assert "Writing" not in terminal.screen()
    terminal.keys("Say hello.", "Enter")
    terminal.wait_for("finished")
    terminal.keys("C-q")
    terminal.wait_left(0)


def fleetchat(terminal: Terminal, *words: str) -> str:
    """What a command says about the chats of the terminal."""
    environment = os.environ | {
        MARK: str(terminal.folder / "state"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "fleetchat", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
