"""The user's own keys, on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.app.app import FleetchatApp
from fleetchat.app.archive import Archive
from fleetchat.app.keymap import resolve
from fleetchat.app.theme import LoadedThemes
from tests.app.pilot import screen_text, wait_until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


async def test_keys_are_changed_clashes_are_told_and_ctrl_q_leaves(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    keys = resolve({"tab.new": "ctrl+t", "tab.close": "ctrl+t", "chat.stop": "ctrl+q"})
    archive = Archive(tmp_path / "chats.db")
    app = FleetchatApp(runtime, archive, LoadedThemes((), ()), "textual-dark", tmp_path, keys)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await wait_until(pilot, lambda: "Ctrl+T is wanted" in shown(pilot))
        assert "Ctrl+Q cannot be" in shown(pilot)
        await pilot.press("ctrl+n")
        assert len(app.chat_screen.tabs.numbers) == 1
        await pilot.press("ctrl+t")
        await wait_until(pilot, lambda: len(app.chat_screen.tabs.numbers) == 2)
        assert "^T New chat" in shown(pilot)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not app.is_running)
    assert archive.close(5)


def shown(pilot: object) -> str:
    return " ".join(screen_text(pilot).split())  # type: ignore[arg-type]
