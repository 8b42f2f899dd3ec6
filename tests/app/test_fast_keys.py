"""Keys that come faster than the program gets to them."""

from __future__ import annotations

import pytest

from fleetchat.app.events import ChatNumber, SnapshotTaken
from fleetchat.app.panel.layout import PanelMode
from fleetchat.app.screens.fleet import FleetScreen
from tests.app.pilot import chat_screen, running, screen_text, wait_until
from tests.fakes.panel import busy_snapshot
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

CHATS = {ChatNumber(1): 1}


async def test_a_snapshot_that_comes_before_the_board_of_the_whole_screen_does_no_harm() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        screen = chat_screen(pilot)
        screen.show_mode(PanelMode.FULL)
        assert isinstance(pilot.app.screen, FleetScreen)  # pushed; its board is not there yet
        screen.take_fleet(SnapshotTaken(busy_snapshot(), {}, CHATS))
        await wait_until(pilot, lambda: "Pipeline" in screen_text(pilot))


@pytest.mark.parametrize("command", ["app.help", "tab.rename", "chat.find", "app.theme", "view.panel"])
async def test_a_command_that_is_repeated_before_it_is_carried_out_opens_one_screen(command: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        screen = chat_screen(pilot)
        for _ in range(4):
            screen.action_command(command)
        await wait_until(pilot, lambda: not screen.is_active)
        opened = pilot.app.screen
        await wait_until(pilot, lambda: not screen.message_queue_size)
        assert pilot.app.screen is opened
        await pilot.press("escape")
        await wait_until(pilot, lambda: screen.is_active)
        await wait_until(pilot, lambda: "Type a message, Enter sends" in screen_text(pilot))
