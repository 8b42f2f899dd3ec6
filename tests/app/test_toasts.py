"""What the program tells in passing."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from tests.app.pilot import chat_screen, running, wait_until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def told(pilot: Pilot[None]) -> list[str]:
    """The words of all toasts on the screen, from top to bottom."""
    return [str(toast.render()) for toast in pilot.app.screen.query(Toast)]


async def test_the_same_words_do_not_pile_up() -> None:
    async with running(FakeRuntime()) as pilot:
        for words in ("one", "two", "one", "one", "one"):
            chat_screen(pilot).tell(words)
        await wait_until(pilot, lambda: told(pilot) == ["two", "one"])
