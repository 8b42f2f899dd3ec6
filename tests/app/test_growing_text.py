"""Text that grows within its lines is drawn, but the screen is not laid out anew."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from fleetchat.app.widgets.growing_text import GrowingText
from tests.app.pilot import screen_text, wait_until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class OneText(App[None]):
    """Nothing but the text."""

    def compose(self) -> ComposeResult:
        yield GrowingText("one")


def shown(pilot: Pilot[None], *lines: str) -> bool:
    return screen_text(pilot).split("\n")[: len(lines) + 1] == [*lines, ""]


async def test_a_layout_comes_with_another_number_of_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OneText().run_test(size=(20, 8)) as pilot:
        text = pilot.app.query_one(GrowingText)
        wanted: list[bool] = []
        refresh = text.refresh

        def noted(*regions: Region, layout: bool = False, **others: bool) -> GrowingText:
            wanted.append(layout)
            return refresh(*regions, layout=layout, **others)

        await wait_until(pilot, lambda: shown(pilot, "one"))
        monkeypatch.setattr(text, "refresh", noted)
        text.show("one two three")
        assert wanted == [False]
        await wait_until(pilot, lambda: shown(pilot, "one two three"))
        text.show("one two three four five")
        assert wanted[-1] is True
        await wait_until(pilot, lambda: shown(pilot, "one two three four", "five"))
        wanted.clear()
        text.show("one two three four five six")
        assert wanted == [False]
        await wait_until(pilot, lambda: shown(pilot, "one two three four", "five six"))
        text.show("short")
        assert wanted[-1] is True
        await wait_until(pilot, lambda: shown(pilot, "short"))
        wanted.clear()
        text.show("short")
        assert wanted == []


async def test_another_width_has_its_own_number_of_lines() -> None:
    async with OneText().run_test(size=(20, 8)) as pilot:
        text = pilot.app.query_one(GrowingText)
        await wait_until(pilot, lambda: shown(pilot, "one"))
        text.show("one two three")
        await wait_until(pilot, lambda: shown(pilot, "one two three"))
        await pilot.resize_terminal(8, 8)
        await wait_until(pilot, lambda: shown(pilot, "one two", "three"))
        text.show("one two three four")
        await wait_until(pilot, lambda: shown(pilot, "one two", "three", "four"))
        await pilot.resize_terminal(30, 8)
        await wait_until(pilot, lambda: shown(pilot, "one two three four"))
