"""The panel in its states at three sizes, as text. FLEETCHAT_UPDATE_SCREENS=1 writes them anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from fleetchat.app.events import ChatNumber, SnapshotTaken
from fleetchat.app.panel.layout import PanelMode
from fleetchat.app.panel.view import PanelView
from fleetchat.app.screens.fleet import FleetScreen
from tests.app.pilot import chat_screen, running, screen_text, wait_until
from tests.fakes.panel import busy_view, hot_view, lost_view, prefill_view
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FOLDER = Path(__file__).parent / "screens"
UPDATE = bool(os.environ.get("FLEETCHAT_UPDATE_SCREENS"))  # read before a fixture takes it away
SIZES = [(80, 24), (100, 30), (160, 45)]
STATES: dict[str, Callable[[], PanelView]] = {
    "busy": busy_view,
    "hot": hot_view,
    "lost": lost_view,
    "prefill": prefill_view,
}


async def show(pilot: Pilot[None], runtime: FakeRuntime, view: PanelView) -> None:
    """Have the panel show it, with nothing of the state before."""
    screen = chat_screen(pilot)
    screen.fleet.forget()
    chats = {ChatNumber(place): session for session, place in view.tabs.items()}
    runtime.say(SnapshotTaken(view.snapshot, {}, chats))
    await wait_until(pilot, lambda: screen.fleet.view is not None)
    await pilot.pause()
    await pilot.pause()


async def compare(pilot: Pilot[None], name: str, size: tuple[int, int]) -> None:
    file = FOLDER / f"fleet-{name}-{size[0]}x{size[1]}.txt"
    if UPDATE:
        await pilot.pause()
        file.write_text(screen_text(pilot) + "\n", encoding="utf-8")
    expected = file.read_text(encoding="utf-8")
    await wait_until(pilot, lambda: screen_text(pilot) + "\n" == expected)
    lines = expected.splitlines()
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_panel_looks_as_it_did(size: tuple[int, int]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, size) as pilot:
        for _ in range(2):
            await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: len(chat_screen(pilot).tabs.numbers) == 3)
        for name in STATES:
            await show(pilot, runtime, STATES[name]())
            await compare(pilot, f"{name}-beside", size)
        chat_screen(pilot).show_mode(PanelMode.FULL)
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        for name in STATES:
            await show(pilot, runtime, STATES[name]())
            await compare(pilot, f"{name}-full", size)
