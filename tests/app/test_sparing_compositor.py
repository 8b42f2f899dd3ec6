"""What changed is written as Textual writes it; what did not change is not even rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

import pytest
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from fleetchat.app.sparing_compositor import SparingCompositor

CONSOLE = Console(color_system="truecolor", force_terminal=True, width=40)


class Counted(Static):
    """Knows how many of its lines were asked for."""

    asked = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.asked += crop.height
        return super().render_lines(crop)


class Sparing(Screen[None]):
    DEFAULT_CSS = """
    Sparing { layers: below above; }
    #top { height: 1; background: blue; }
    #left { width: 12; border: round red; }
    #list { border-left: solid green; }
    #list Counted { height: 6; padding: 1; }
    #over { layer: above; position: absolute; offset: 8 2; width: 20; height: 3; background: yellow; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def compose(self) -> ComposeResult:
        yield Counted("top", id="top")
        with Horizontal():
            with Vertical(id="left"):
                yield Counted("left and quite a long text", id="text")
            with VerticalScroll(id="list"):
                yield Counted("one", id="one")
                yield Counted("two", id="two")
                yield Counted("three", id="three")
        yield Counted("over 火", id="over")


class SparingApp(App[None]):
    def get_default_screen(self) -> Screen[None]:
        return Sparing()


REGIONS = (
    Region(0, 0, 40, 1),
    Region(0, 5, 12, 1),
    Region(1, 2, 10, 2),
    Region(8, 2, 20, 3),
    Region(30, 3, 9, 4),
    Region(9, 3, 4, 1),
    Region(39, 11, 1, 1),
)


def seen(update: ChopsUpdate) -> str:
    """What is written, without moves of the cursor after which nothing is."""
    return re.sub(r"\x1b\[\d+;\d+H(?=\x1b\[\d+;\d+H|\n|$)", "", update.render_segments(CONSOLE))


def some_regions() -> Iterator[set[Region]]:
    for count in (1, 2, 3):
        yield from map(set, combinations(REGIONS, count))


@pytest.mark.asyncio
async def test_the_same_is_written_as_by_textual() -> None:
    async with SparingApp().run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        compositor = pilot.app.screen._compositor
        assert isinstance(compositor, SparingCompositor)
        for regions in some_regions():
            compositor._dirty_regions = set(regions)
            expected = Compositor.render_partial_update(compositor)
            compositor._dirty_regions = set(regions)
            written = compositor.render_partial_update()
            assert expected is not None
            assert written is not None
            assert seen(written) == seen(expected)
            assert not compositor._dirty_regions


@pytest.mark.asyncio
async def test_what_did_not_change_is_not_rendered() -> None:
    async with SparingApp().run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        compositor = pilot.app.screen._compositor
        widgets = {widget.id: widget for widget in pilot.app.screen.query(Counted)}
        for widget in widgets.values():
            widget.asked = 0
        compositor._dirty_regions = {widgets["top"].region, widgets["over"].region}
        compositor.render_partial_update()
        asked = {name: widget.asked for name, widget in widgets.items() if widget.asked}
        assert asked == {"top": 1, "over": 3}


@pytest.mark.asyncio
async def test_nothing_changed_and_what_lies_below_a_screen_that_shrank() -> None:
    async with SparingApp().run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        compositor = pilot.app.screen._compositor
        compositor._dirty_regions = set()
        assert compositor.render_partial_update() is None
        compositor._dirty_regions = {Region(0, 12, 40, 3)}
        assert compositor.render_partial_update() is None
