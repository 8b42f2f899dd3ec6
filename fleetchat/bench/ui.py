"""`bench ui`: what the screen costs, in a terminal of its own, against the same fleet without a screen."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import trio

from fleetchat.bench.pairs import Row, alternate, paired_row
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.ui_chat import (
    CHATS,
    COLUMNS,
    KEYS_A_SECOND,
    LETTERS,
    ROWS,
    STOP,
    ChatInTerminal,
    Measured,
    rate,
    writing,
)
from fleetchat.bench.ui_rates import p95
from fleetchat.bench.workloads import turned
from fleetchat.child import child_environment
from fleetchat.config import load
from fleetchat.errors import InputError
from fleetchat.fleet.configured import prepare_fleet
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import FleetSnapshot

STAGES = 2
STARTS = 3
PROMPTS = (  # without a penalty the default model answers each of them with 700 tokens and more
    "Write a very long story about a lighthouse keeper and the sea.",
    "Explain in great detail how bread is baked, step by step.",
    "Write a long essay about the history of the bicycle.",
    "Write a very long story about a dog who travels through the desert.",
    "Write a long essay about the oceans and their animals.",
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
repetition_penalty = 1.0
"""


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
            work = partial(
                chat.stream, _prompts(pair), effort.seconds, what="beside the chat", letters=letters
            )
            return await trio.to_thread.run_sync(work)

        async def headless(pair: int) -> float:
            return await _headless(fleet, subject, _prompts(pair), effort.seconds)

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
    chat.ask_all(_prompts(0))
    chat.panel(1 if what == "whole screen" else 2)
    chat.wait_writing(before)
    chat.watch(seconds, what, iter(()))
    if what == "whole screen":
        chat.press(STOP)  # leaves the panel, not the reply
        time.sleep(0.5)
    chat.stop_all()


def _prompts(pair: int) -> list[str]:
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
        while not taken or writing(taken[-1]) < CHATS:
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
    return rate(taken)


def _rows(measured: dict[str, list[float]], chat: Measured) -> list[Row]:
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


def _report(setting: Setting, subject: Subject, rows: list[Row], chat: Measured) -> Report:
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
