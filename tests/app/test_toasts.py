"""What the program tells in passing."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from fleetchat.app.app import FleetchatApp
from fleetchat.app.screens.help import HelpScreen
from tests.app.pilot import chat_screen, running, say, wait_until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fades while a slow machine looks for it."""
    monkeypatch.setattr(FleetchatApp, "NOTIFICATION_TIMEOUT", 600.0)


def told(pilot: Pilot[None]) -> list[str]:
    """The words of all toasts on the screen, from top to bottom."""
    return [str(toast.render()) for toast in pilot.app.screen.query(Toast)]


async def test_the_same_words_do_not_pile_up() -> None:
    async with running(FakeRuntime()) as pilot:
        for words in ("one", "two", "one", "one", "one"):
            chat_screen(pilot).tell(words)
        await wait_until(pilot, lambda: told(pilot) == ["two", "one"])


async def test_two_stand_over_the_chat_at_most_and_an_error_longest() -> None:
    async with running(FakeRuntime()) as pilot:
        for words in ("one", "two", "three", "four"):
            chat_screen(pilot).tell(words)
        await wait_until(pilot, lambda: told(pilot) == ["three", "four"])
        pilot.app.notify("broken", severity="error", timeout=600)
        for words in ("five", "six"):
            chat_screen(pilot).tell(words)
        await wait_until(pilot, lambda: told(pilot) == ["broken", "six"])


async def test_escape_takes_them_away_before_it_does_anything_else() -> None:
    async with running(FakeRuntime()) as pilot:
        chat_screen(pilot).tell("two")
        await wait_until(pilot, lambda: told(pilot) == ["two"])
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen) and told(pilot) == ["two"])
        await pilot.press("escape")
        await wait_until(pilot, lambda: told(pilot) == [])
        assert isinstance(pilot.app.screen, HelpScreen)
        await pilot.press("escape")
        await wait_until(pilot, lambda: pilot.app.screen is chat_screen(pilot))


async def test_escape_stops_a_reply_at_once_whatever_is_told_over_it() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await say(pilot, "hello")
        await wait_until(pilot, lambda: runtime.submitted)
        chat_screen(pilot).tell("one")
        await wait_until(pilot, lambda: told(pilot) == ["one"])
        await pilot.press("escape")
        await wait_until(pilot, lambda: runtime.stopped)
        await wait_until(pilot, lambda: told(pilot) == [])


async def test_a_name_that_does_not_exist_brings_no_list_of_all() -> None:
    async with running(FakeRuntime()) as pilot:
        await say(pilot, "/theme textual-drak")
        count = len(pilot.app.available_themes)
        words = "There is no theme 'textual-drak'; the nearest is 'textual-dark'; /theme shows all"
        await wait_until(pilot, lambda: told(pilot) == [f"{words} {count}"])
