"""`bench ui`: what the screen costs, in a terminal of its own, against the same fleet without a screen."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import trio

from fleetchat.app.panel.recording import read_frame
from fleetchat.bench.pairs import Row, alternate, paired_row
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.terminal import Terminal, cpu_seconds, resident_bytes
from fleetchat.bench.ui_rates import p95, rate_of
from fleetchat.bench.workloads import turned
from fleetchat.child import child_command, child_environment
from fleetchat.config import load
from fleetchat.errors import FleetchatError, InputError
from fleetchat.fleet.configured import prepare_fleet
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import FleetSnapshot

CHATS = 4
STAGES = 2
COLUMNS, ROWS = 140, 40
KEYS_A_SECOND = 8  # of somebody who types fast
LETTERS = [chr(code) for code in range(0x13A0, 0x13F5)]  # Cherokee: no reply has any
STARTS = 3
SETTLED = 0.5  # seconds after which a tab takes what is typed, also on a busy machine
READY = 90.0  # seconds that a fleet may take to start
NEW_CHAT, CLOSE_CHAT, PANEL, QUIT, STOP = "\x0e", "\x1b[19~", "\x1b[20~", "\x11", "\x1b"
CLEAR = "\x15"  # the line that is typed
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
PROMPTS = (
    "Write a very long story about a lighthouse keeper and the sea.",
    "Explain in great detail how bread is baked, step by step.",
    "Tell the long history of the bicycle, decade by decade.",
    "Describe a journey around the world, country after country.",
    "Write a long letter to a friend about a summer in the mountains.",
)
CONFIGURATION = """\
[model]
recipe = "{recipe}"
[fleet]
stages = {stages}
precision = "{precision}"
threads = 1
[speculation]
drafter = "none"
[sampling]
temperature = 0.0
"""


@dataclass(slots=True)
class _Measured:
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
        self._read_to = 0
        self._snapshots: list[FleetSnapshot] = []
        self.measured = _Measured()
        self.terminal: Terminal | None = None

    def start(self) -> float:
        """Seconds until the first paint."""
        began = time.perf_counter()
        self._records += 1
        self._read_to, self._snapshots = 0, []
        settings = ("--fleet", str(self._folder / "fleet.toml"))
        command = child_command(*settings, "--record", str(self.record), "--record-limit", "512")
        self.terminal = Terminal(command, self._environment, columns=COLUMNS, rows=ROWS)
        self.terminal.seek("Type a message")
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
                time.sleep(SETTLED)
            self._write(prompt)
            self.running.type("\r")
            self._wait(partial(self._serves, number + 1), "a chat was not served")

    def _write(self, prompt: str) -> None:
        """Pasted, since keys are drawn one by one; once more where it went into a tab that was just left."""
        for patience in (5.0, 5.0, READY):
            self.running.seek(prompt.split()[-1])
            self.running.type(f"{CLEAR}{PASTE}{prompt}{PASTED}")
            try:
                self.running.wait_seen(patience)
                return
            except FleetchatError:
                if patience == READY:
                    raise

    def _serves(self, chats: int) -> bool:
        """Whether so many chats hold a session: also those whose short reply is over already."""
        return len(self.snapshots()[-1].sessions) == chats

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + READY
        while not condition():
            if self.running.process.poll() is not None:
                raise FleetchatError("the chat ended by itself")
            if time.monotonic() > deadline:
                raise FleetchatError(f"{complaint} within {READY:g} s")
            time.sleep(0.25)

    def stop_all(self) -> None:
        """Close the tabs, and their replies with them."""
        for _ in range(CHATS):
            self.press(CLOSE_CHAT)
        self._wait(partial(self._serves, 0), "the chats did not end")
        time.sleep(SETTLED)

    def wait_writing(self, since: int) -> None:
        """Until all chats write at once."""
        self._wait(
            lambda: any(_writing(one) == CHATS for one in self.snapshots(since)[-4:]),
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
        return _rate(taken)

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


def _rate(taken: Sequence[FleetSnapshot]) -> float:
    try:
        return rate_of(taken, CHATS)
    except ValueError as error:
        raise FleetchatError(f"{error} for long enough; give it more time") from error


def _writing(snapshot: FleetSnapshot) -> int:
    return sum(one.generating and not one.prefill_total for one in snapshot.sessions)


async def measure_ui(setting: Setting) -> Report:
    """Rows `ui.…`. Raises FleetchatError."""
    subject = await prepare(setting, STAGES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chat = ChatInTerminal(folder, _environment(setting, folder))
        with _closing(chat):
            rows = await _measure(setting, subject, chat, folder)
    return _report(setting, subject, rows, chat.measured)


@contextmanager
def _closing(chat: ChatInTerminal) -> Iterator[None]:
    try:
        yield
    finally:
        chat.close()


def _environment(setting: Setting, folder: Path) -> dict[str, str]:
    """Own configuration and state; the shards are those that there are. Writes the configuration."""
    if setting.store_root.name != "shards":
        raise InputError(
            f"bench ui needs a store whose folder is called shards, not {setting.store_root.name}"
        )
    words = CONFIGURATION.format(recipe=setting.recipe, stages=STAGES, precision=setting.precision)
    (folder / "fleet.toml").write_text(words, encoding="utf-8")
    kept = {name: text for name, text in child_environment().items() if not name.startswith("FLEETCHAT_")}
    return {
        **kept,
        "FLEETCHAT_CONFIG_DIR": str(folder),
        "FLEETCHAT_STATE_DIR": str(folder / "state"),
        "FLEETCHAT_CACHE_DIR": str(setting.store_root.parent),
    }


async def _measure(setting: Setting, subject: Subject, chat: ChatInTerminal, folder: Path) -> list[Row]:
    effort, letters = setting.effort, iter(LETTERS)
    for start in range(STARTS + 1):  # the first one warms the caches
        setting.note(f"first paint, {start} of {STARTS}")
        painted = await trio.to_thread.run_sync(chat.start)
        if start:
            chat.measured.first_paints.append(painted)
        if start < STARTS:
            await trio.to_thread.run_sync(chat.close)
    await trio.to_thread.run_sync(chat.wait_ready)
    ready = chat.memory()
    options = await prepare_fleet(load(folder / "fleet.toml", {}), on_build=lambda _: None)
    async with open_fleet(options, on_progress=setting.note) as fleet:

        async def with_screen(pair: int) -> float:
            work = partial(chat.stream, _asked(pair), effort.seconds, what="beside the chat", letters=letters)
            return await trio.to_thread.run_sync(work)

        async def headless(pair: int) -> float:
            return await _headless(fleet, subject, _asked(pair), effort.seconds)

        members = {"screen": with_screen, "headless": headless}
        measured = await alternate(
            members, effort.pairs, lambda pair: setting.note(f"pair {pair + 1} of {effort.pairs}")
        )
    for what in ("whole screen", "hidden"):
        setting.note(f"panel: {what}")
        await trio.to_thread.run_sync(partial(_phase, chat, what, effort.seconds))
    await trio.to_thread.run_sync(chat.panel, 1)
    await trio.to_thread.run_sync(chat.rest, max(5.0, effort.seconds))
    chat.measured.memory = (ready, chat.memory())
    return _rows(measured, chat.measured)


def _phase(chat: ChatInTerminal, what: str, seconds: float) -> None:
    """Processor time with the panel in another mode. On the whole screen no key reaches the chats."""
    before = len(chat.snapshots())
    chat.ask_all(_asked(0))
    chat.panel(1 if what == "whole screen" else 2)
    chat.wait_writing(before)
    chat.watch(seconds, what, iter(()))
    if what == "whole screen":
        chat.press(STOP)  # leaves the panel, not the reply
        time.sleep(0.5)
    chat.stop_all()


def _asked(pair: int) -> list[str]:
    return turned(PROMPTS, pair)[:CHATS]


async def _headless(fleet: Fleet, subject: Subject, prompts: Sequence[str], seconds: float) -> float:
    """The same chats without a screen; snapshots are taken as often as the screen takes them."""
    sessions = [fleet.new_session() for _ in prompts]
    taken: list[FleetSnapshot] = []
    async with trio.open_nursery() as nursery:
        for session, prompt in zip(sessions, prompts, strict=True):
            request = GenerationRequest(
                subject.prompt_ids(prompt), SamplingSettings(0.0), 0, 1024, subject.stop_ids
            )
            decoder = subject.chat_format.decoder()
            nursery.start_soon(partial(fleet.generate, session, request, decoder, on_text=lambda text: None))
        while not taken or _writing(taken[-1]) < CHATS:
            taken.append(fleet.snapshot())
            await trio.sleep(0.25)
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            taken.append(fleet.snapshot())
            await trio.sleep(0.25)
        for session in sessions:
            session.stop()
    for session in sessions:
        await fleet.close_session(session)
    return _rate(taken)


def _rows(measured: dict[str, list[float]], chat: _Measured) -> list[Row]:
    cpu = {what: 100 * median(shares) for what, shares in chat.cpu.items()}
    ready, end = (size / 2**20 for size in chat.memory)
    return [
        Row("ui.echo/p95", 1000 * p95(chat.echoes), "ms"),
        Row("ui.echo/median", 1000 * median(chat.echoes), "ms"),
        paired_row("ui.throughput/headless", "tokens/s", measured["screen"], measured["headless"]),
        Row("ui.first-paint", median(chat.first_paints), "s"),
        Row("ui.cpu/streaming", cpu["beside the chat"], "% of a core"),
        Row("ui.cpu/idle", cpu["idle"], "% of a core"),
        Row("ui.cpu/panel-beside", cpu["beside the chat"] - cpu["hidden"], "% of a core"),
        Row("ui.cpu/panel-whole-screen", cpu["whole screen"] - cpu["hidden"], "% of a core"),
        Row("ui.memory", end, "MiB", baseline=ready, ratio=end / ready),
    ]


def _report(setting: Setting, subject: Subject, rows: list[Row], chat: _Measured) -> Report:
    return Report(
        title=f"the chat in a terminal of {COLUMNS} by {ROWS}, {CHATS} chats that write",
        setup=(
            f"{subject.manifest.model}, {setting.precision}, {STAGES} embedded stages of one thread, no "
            f"drafts, T = 0; {KEYS_A_SECOND} keys a second while the chats write, each a letter that "
            f"stands nowhere else; {setting.effort.seconds:g} s a member; headless: the same chats on such a "
            "fleet in this process"
        ),
        formula=(
            "throughput: tokens / seconds while all chats write, from four snapshots a second on both sides; "
            "echo: from the key to the first byte string that holds it; cpu: the chat's own process (screen "
            "and coordinator, not the stages); panel: against the hidden panel; memory: at the end / when "
            "ready"
        ),
        ceiling="throughput 1: the screen takes nothing from the stages",
        rows=tuple(rows),
        notes=(
            f"{len(chat.echoes)} keys; {len(chat.first_paints)} starts with warm caches; about "
            f"{chat.tokens:,} tokens in the chats",
        ),
    )
