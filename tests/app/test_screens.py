"""The main states of the chat as they look, in text. FLEETCHAT_UPDATE_SCREENS=1 writes them anew."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot

from fleetchat.app.events import ChatNumber, ReplyFinished, RuntimeFailed, SnapshotTaken, TextArrived
from fleetchat.app.panel.layout import PanelMode
from tests.app.pilot import chat_screen, new_tab, running, say, screen_text, type_text, wait_until
from tests.app.test_dialogues import talk
from tests.fakes.runtime import FakeRuntime, answer, snapshot

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FOLDER = Path(__file__).parent / "screens"
UPDATE = bool(os.environ.get("FLEETCHAT_UPDATE_SCREENS"))  # read before a fixture takes it away
SIZES = [(80, 24), (100, 30), (160, 45)]
REPLY = """# Lighthouses

A *lighthouse* is a **tower** with `light`:

1. Pharos of Alexandria
2. Tower of Hercules, which is still in use and stands near the entrance of a harbour in Galicia

```py
for light in lights:
    light.turn()
```

| name | metres |
|------|--------|
| Pharos | 100 |
"""

State = Callable[[Pilot[None], FakeRuntime], Awaitable[None]]


async def welcome(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    """As it begins."""


async def finished(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    await talk(pilot, runtime, "Tell me of lighthouses", REPLY)
    await wait_until(pilot, lambda: "finished" in screen_text(pilot))


async def three_chats(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    for number, text in enumerate(("alpha", "beta", "gamma"), start=1):
        if number > 1:
            await new_tab(pilot)
        await say(pilot, text)
        await wait_until(pilot, lambda number=number: len(runtime.submitted) == number)
        runtime.say(TextArrived(ChatNumber(number), f"reply {number}"))
    runtime.say(ReplyFinished(ChatNumber(1), answer("reply 1")))
    speeds = {ChatNumber(2): 10.5, ChatNumber(3): 12.0}
    runtime.say(SnapshotTaken(snapshot(tokens_per_s=22.5), speeds))
    await wait_until(pilot, lambda: "12.0/s" in screen_text(pilot))


async def slash(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    await type_text(pilot, "x")
    chat_screen(pilot).pane.prompt.set_text("/re")
    await wait_until(pilot, lambda: "Draw the reply anew" in screen_text(pilot))


async def search(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    await talk(pilot, runtime, "Tell me of lighthouses", "A lighthouse is a tower.")
    await say(pilot, "/find lighthouse")
    await wait_until(pilot, lambda: "2 messages" in screen_text(pilot))


async def show_help(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    await pilot.press("f1")
    await wait_until(pilot, lambda: "Send the message" in screen_text(pilot))


async def themes(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    await pilot.press("f4")
    await wait_until(pilot, lambda: "Enter keeps it" in screen_text(pilot))


async def failed(pilot: Pilot[None], runtime: FakeRuntime) -> None:
    runtime.say(RuntimeFailed("stage 1 at 127.0.0.1:7078 is lost", "start the peer again"))
    await wait_until(pilot, lambda: "start the peer again" in screen_text(pilot))


STATES: dict[str, State] = {
    "welcome": welcome,
    "finished": finished,
    "three-chats": three_chats,
    "slash": slash,
    "search": search,
    "help": show_help,
    "themes": themes,
    "failed": failed,
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
async def test_the_screen_looks_as_it_did(name: str, size: tuple[int, int]) -> None:
    file = FOLDER / f"{name}-{size[0]}x{size[1]}.txt"
    known = file.read_text(encoding="utf-8") if file.exists() else ""
    runtime = FakeRuntime()
    async with running(runtime, size) as pilot:
        chat_screen(pilot).show_mode(PanelMode.HIDDEN)  # the fleet panel has tests of its own
        await STATES[name](pilot, runtime)
        await pilot.pause()
        await pilot.pause()
        with suppress(AssertionError):  # what is seen is told below, line by line
            await wait_until(pilot, lambda: UPDATE or screen_text(pilot) + "\n" == known)
        seen = screen_text(pilot) + "\n"
    lines = seen.splitlines()
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    if UPDATE:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(seen, encoding="utf-8")
    assert seen == file.read_text(encoding="utf-8")
