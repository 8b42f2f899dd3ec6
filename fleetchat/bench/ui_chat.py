"""The real chat in a terminal of its own: it is typed to, and what it records is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fleetchat.app.panel.recording import read_frame
from fleetchat.bench.terminal import Terminal, cpu_seconds, resident_bytes
from fleetchat.bench.ui_rates import rate_of
from fleetchat.child import child_command
from fleetchat.errors import FleetchatError
from fleetchat.fleet.telemetry import FleetSnapshot

CHATS = 4
COLUMNS, ROWS = 140, 40
KEYS_A_SECOND = 8  # of somebody who types fast
LETTERS = [chr(code) for code in range(0x13A0, 0x13F5)]  # Cherokee: no reply has any
SETTLED = 0.5  # seconds after which a tab takes what is typed, also on a busy machine
READY = 90.0  # seconds that a fleet may take to start
NEW_CHAT, CLOSE_CHAT, PANEL, QUIT, STOP = "\x0e", "\x1b[19~", "\x1b[20~", "\x11", "\x1b"
CLEAR = "\x15"  # the line that is typed
PATIENCE = (10.0, 10.0, READY)  # seconds until a prompt is given once more, and until it has failed
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


@dataclass(slots=True)
class Measured:
    """What the chat in its terminal showed of itself."""

    first_paints: list[float] = field(default_factory=list)
    echoes: list[float] = field(default_factory=list)
    cpu: dict[str, list[float]] = field(default_factory=dict)  # by what the panel does
    memory: tuple[int, int] = (0, 0)  # bytes when the fleet was ready, and at the end
    tokens: int = 0

    def note_cpu(self, what: str, share: float) -> None:
        self.cpu.setdefault(what, []).append(share)


class ChatInTerminal:
    """The real chat. What the panel records tells how many tokens were written."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._records = 0
        self._asked = 0  # chats in tabs of their own
        self._read_to = 0
        self._snapshots: list[FleetSnapshot] = []
        self.measured = Measured()
        self.terminal: Terminal | None = None

    def start(self) -> float:
        """Seconds until the first paint."""
        began = time.perf_counter()
        self._records += 1
        self._read_to, self._snapshots, self._asked = 0, [], 0
        settings = ("--fleet", str(self._folder / "fleet.toml"))
        command = child_command(*settings, "--record", str(self.record), "--record-limit", "512")
        self.terminal = Terminal(
            command, self._environment, columns=COLUMNS, rows=ROWS, sought="Type a message"
        )
        return self.terminal.wait_seen(READY) - began

    @property
    def record(self) -> Path:
        return self._folder / f"record-{self._records}.jsonl"

    @property
    def running(self) -> Terminal:
        assert self.terminal is not None
        return self.terminal

    def wait_ready(self) -> None:
        """Until the fleet serves: the panel tells it."""
        self._wait(lambda: bool(self.snapshots()), "the chat's fleet was not ready")

    def snapshots(self, since: int = 0) -> list[FleetSnapshot]:
        """What was recorded so far, from a number on."""
        with suppress(FileNotFoundError), self.record.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                if b'"snapshot"' in line and (frame := read_frame(line)) is not None:
                    self._snapshots.append(frame.view.snapshot)
        return self._snapshots[since:]

    def ask_all(self, prompts: Sequence[str]) -> None:
        """Begin one chat for each prompt, all in new tabs, the next one when the one before is served."""
        self.stop_all()
        for number, prompt in enumerate(prompts):
            if number:
                self.running.seek("New chat")
                self.running.type(NEW_CHAT)
                self.running.wait_seen(READY)
            self._asked = number + 1
            self._ask(prompt)

    def _ask(self, prompt: str) -> None:
        """Pasted, since keys are drawn one by one; once more where it went into a tab that was just left."""
        served = partial(self._serves, self._asked)
        for patience in PATIENCE:
            for keys in (CLEAR, f"{PASTE}{prompt}{PASTED}", "\r"):  # a key may be read after what follows it
                self.running.type(keys)
                time.sleep(SETTLED)
            if self._comes_true(served, patience):
                return
        raise FleetchatError(f"a chat was not served within {PATIENCE[-1]:g} s")

    def _serves(self, chats: int) -> bool:
        """Whether so many chats hold a session: also those whose short reply is over already."""
        return len(self.snapshots()[-1].sessions) >= chats

    def _is_at_rest(self) -> bool:
        return not self.snapshots()[-1].sessions

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        if not self._comes_true(condition, READY):
            raise FleetchatError(f"{complaint} within {READY:g} s")

    def _comes_true(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for it. Raises FleetchatError when the chat ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.running.process.poll() is not None:
                raise FleetchatError("the chat ended by itself")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def stop_all(self) -> None:
        """Close the tabs, and their replies with them."""
        for _ in range(self._asked):
            self.press(CLOSE_CHAT)
        self._asked = 0
        self._wait(self._is_at_rest, "the chats did not end")
        time.sleep(SETTLED)

    def wait_writing(self, since: int) -> None:
        """Until all chats write at once."""
        self._wait(
            lambda: any(writing(one) == CHATS for one in self.snapshots(since)[-4:]),
            f"{CHATS} chats did not write at the same time",
        )

    def stream(self, prompts: Sequence[str], seconds: float, *, what: str, letters: Iterator[str]) -> float:
        """Tokens a second of all chats together; keys are pressed meanwhile."""
        before = len(self.snapshots())
        self.ask_all(prompts)
        self.wait_writing(before)
        self.watch(seconds, what, letters)
        taken = self.snapshots(before)
        self.stop_all()
        self.measured.tokens += sum(one.tokens for one in taken[-1].sessions) if taken else 0
        return rate(taken)

    def watch(self, seconds: float, what: str, letters: Iterator[str]) -> None:
        """Keys and processor time."""
        began, used = time.monotonic(), cpu_seconds(self.running.process.pid)
        while time.monotonic() - began < seconds:
            due = time.monotonic() + 1 / KEYS_A_SECOND
            if (letter := next(letters, None)) is not None:
                self.measured.echoes.append(self.running.echo(letter))
            time.sleep(max(0.0, due - time.monotonic()))
        spent = cpu_seconds(self.running.process.pid) - used
        self.measured.note_cpu(what, spent / (time.monotonic() - began))

    def rest(self, seconds: float) -> None:
        """Nothing is done: what does the processor do?"""
        time.sleep(1.5)
        began, used = time.monotonic(), cpu_seconds(self.running.process.pid)
        time.sleep(seconds)
        spent = cpu_seconds(self.running.process.pid) - used
        self.measured.note_cpu("idle", spent / (time.monotonic() - began))

    def panel(self, presses: int) -> None:
        for _ in range(presses):
            self.press(PANEL)
            time.sleep(0.5)

    def memory(self) -> int:
        return resident_bytes(self.running.process.pid)

    def close(self) -> None:
        if self.terminal is not None:
            self.terminal.close(QUIT)
            self.terminal = None

    def press(self, keys: str) -> None:
        self.running.type(keys)
        time.sleep(0.15)


def rate(taken: Sequence[FleetSnapshot]) -> float:
    try:
        return rate_of(taken, CHATS)
    except ValueError as error:
        raise FleetchatError(f"{error} for long enough; give it more time") from error


def writing(snapshot: FleetSnapshot) -> int:
    return sum(one.generating and not one.prefill_total for one in snapshot.sessions)
