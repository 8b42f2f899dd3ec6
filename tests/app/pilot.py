"""What the tests of the screen share: wait for a condition, read the screen as text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot

from fleetchat.app.app import FleetchatApp
from fleetchat.app.archive import Archive
from fleetchat.app.screens.chat import ChatScreen
from fleetchat.app.theme import LoadedThemes
from fleetchat.app.widgets.start_panel import StartPanel
from fleetchat.chat.history import FILE_NAME
from tests.fakes.runtime import FakeRuntime

DEADLINE = 30.0  # seconds; only a failing test waits that long


async def wait_until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Let the application work until `condition` holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"never came true; the screen shows:\n{screen_text(pilot)}"
        await pilot.pause()


def chat_screen(pilot: Pilot[None]) -> ChatScreen:
    """The screen below all dialogues."""
    assert isinstance(pilot.app, FleetchatApp)
    return pilot.app.chat_screen


def screen_text(pilot: Pilot[None]) -> str:
    """What stands on the screen, line by line, without styles."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


@asynccontextmanager
async def running(
    runtime: FakeRuntime, size: tuple[int, int] = (80, 24), *, ready: bool = True, state: Path | None = None
) -> AsyncIterator[Pilot[None]]:
    """The application on a terminal of that size, the fleet ready unless said otherwise.

    `state` is the folder that a run before this one used; else it starts with nothing.
    """
    with TemporaryDirectory() as fresh:
        folder = state or Path(fresh)
        archive = Archive(folder / FILE_NAME)
        app = FleetchatApp(runtime, archive, LoadedThemes((), ()), "textual-dark", folder)
        try:
            async with _shown(app, runtime, size, ready) as pilot:
                yield pilot
        finally:
            archive.close(10)


@asynccontextmanager
async def _shown(
    app: FleetchatApp, runtime: FakeRuntime, size: tuple[int, int], ready: bool
) -> AsyncIterator[Pilot[None]]:
    async with app.run_test(size=size, notifications=True) as pilot:
        await wait_until(pilot, lambda: runtime.started)
        if ready and type(runtime) is FakeRuntime:
            runtime.become_ready()
            await wait_until(pilot, lambda: not app.query(StartPanel).first().display)
            await wait_until(pilot, lambda: app.chat_screen.fleet.view is not None)
        yield pilot


async def new_tab(pilot: Pilot[None]) -> None:
    """Open an empty chat; what is typed next goes into it."""
    screen = chat_screen(pilot)
    before = screen.tabs.active
    await pilot.press("ctrl+n")
    await wait_until(pilot, lambda: screen.tabs.active != before and screen.pane.prompt.has_focus)


async def type_text(pilot: Pilot[None], text: str) -> None:
    """Type printable ASCII, faster than anybody does: all keys but the last are there at once."""
    for letter in text[:-1]:
        pilot.app.post_message(Key(_character_to_key(letter), letter))
    await pilot.press(_character_to_key(text[-1]))


async def say(pilot: Pilot[None], text: str) -> None:
    """Type into the prompt, and send."""
    await type_text(pilot, text)
    await pilot.press("enter")
