"""The fleet on the whole screen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from fleetchat.app.clipboard import copied_by
from fleetchat.app.panel.event_lines import event_text, filtered, next_filter
from fleetchat.app.panel.layout import PanelMode, Watching, full_lines
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.pointing import Spot, explanation, moved, spots_of
from fleetchat.app.panel.view import PanelView
from fleetchat.app.screens.explain_figure import ExplainFigureScreen
from fleetchat.app.sparing_compositor import SparingCompositor
from fleetchat.app.widgets.lines_view import LinesView

# The panel has keys of its own for help and for going back; what else these do cannot be seen from here.
NOT_FROM_HERE = frozenset({"app.help", "chat.stop", "view.follow"})


class Board(LinesView):
    """The lines of the whole panel; takes the keys."""

    can_focus = True


class FleetScreen(Screen[PanelMode]):
    """Closes with the mode that follows; commands of the chat close it.

    Paused, it stands still, and the pipeline can be stepped through.
    """

    DEFAULT_CSS = """
    FleetScreen { layout: vertical; background: $background; }
    FleetScreen > Board { height: 1fr; padding: 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", id="fleet.pause", tooltip="Stand still, or go on"),
        Binding("plus,equals_sign", "zoom(1)", "Closer", id="fleet.closer", key_display="+"),
        Binding("minus", "zoom(-1)", "Farther", id="fleet.farther", key_display="-", show=False),
        Binding("comma", "step(-1)", "Step", id="fleet.earlier", key_display=",."),
        Binding("full_stop", "step(1)", "Later", id="fleet.later", show=False),
        Binding("f", "filter", "Events", id="fleet.filter", tooltip="Show one kind of event"),
        Binding("c", "copy", "Copy", id="fleet.copy", tooltip="Copy the events that are shown"),
        Binding("f1,enter", "explain", "Explain", id="fleet.explain", tooltip="What the figure means"),
        Binding("tab,right", "point(1, 0)", "Next figure", id="fleet.next", show=False),
        Binding("shift+tab,left", "point(-1, 0)", "Figure before", id="fleet.previous", show=False),
        Binding("down", "point(0, 1)", "Figure below", id="fleet.down", show=False),
        Binding("up", "point(0, -1)", "Figure above", id="fleet.up", show=False),
        Binding("pagedown", "scroll(1)", "Scroll down", id="fleet.scroll-down", show=False),
        Binding("pageup", "scroll(-1)", "Scroll up", id="fleet.scroll-up", show=False),
        Binding("escape", "leave('side')", "Chat", id="fleet.back", tooltip="Back to the chat"),
        Binding("f9", "leave('hidden')", "Hide", id="fleet.hide", show=False),
    ]

    CHOOSING = "Arrow keys choose a figure, F1 explains it"

    def __init__(
        self,
        model: PanelModel,
        commands: Mapping[str, str] = MappingProxyType({}),
        carry_out: Callable[[str], None] = lambda command: None,
    ) -> None:
        """`commands` of the chat by id with their keys: a key that means nothing here is passed on to it."""
        super().__init__()
        self._carry_out = carry_out
        for command, keys in commands.items():
            unused = [key for key in keys.split(",") if key not in self._bindings.key_to_bindings]
            if unused and command not in NOT_FROM_HERE:
                self._bindings.bind(",".join(unused), f"command('{command}')", show=False)
        self._compositor = SparingCompositor()
        self._model = model
        self._frozen: PanelView | None = None  # while it is paused
        self._still: PanelView | None = None  # what was drawn, when nothing moved
        self.watching = Watching()

    def compose(self) -> ComposeResult:
        yield Board()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(Board).focus()
        self.call_after_refresh(self.draw)

    def on_resize(self, _event: events.Resize) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self.draw()

    @property
    def view(self) -> PanelView | None:
        """What is shown."""
        return self._frozen or self._model.view

    @property
    def now(self) -> float:
        """The newest moment that is known."""
        newest = self._model.blocks.newest
        return newest.end if newest is not None else 0.0

    def follow(self) -> None:
        """The model has something newer."""
        if self.watching.paused:
            return
        still = self._model.still(self.watching.seconds)
        if still is None or still != self._still:
            self.draw()

    def draw(self) -> None:
        """Show what the model has; nothing while the terminal shows something else.

        A screen is the application's as soon as it is pushed: the first snapshots may come before its board.
        """
        board = next(iter(self.query(Board)), None)
        if board is None or not self.app.app_focus or not board.content_size.width:
            return
        size = board.content_size
        view = self.view
        self._still = self._model.still(self.watching.seconds)
        lines = full_lines(view, self._model.blocks, self.watching, size.width, size.height) if view else []
        board.show(lines)

    def action_pause(self) -> None:
        self._watch(self.watching.toggled(self.now))

    def action_zoom(self, steps: int) -> None:
        self._watch(self.watching.zoomed(steps))

    def action_step(self, steps: int) -> None:
        self._watch(self.watching.stepped(steps, self.now))

    def _watch(self, watching: Watching) -> None:
        if not watching.paused:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = self._model.view
        self.watching = watching
        self.draw()

    def action_filter(self) -> None:
        view = self.view
        if view is not None:
            self.watching = replace(self.watching, kind=next_filter(self.watching.kind, view.snapshot.events))
            self.draw()

    async def action_copy(self) -> None:
        """All events of the kind that is shown, also those for which there is no room."""
        view = self.view
        shown = filtered(view.snapshot.events, self.watching.kind) if view is not None else []
        if view is None or not shown:
            self.app.notify("There is no event to copy", markup=False)
            return
        text = "\n".join(event_text(view, event) for event in reversed(shown))
        what = "1 event" if len(shown) == 1 else f"{len(shown)} events"
        tool = await asyncio.to_thread(copied_by, text, os.environ)
        if tool is None:
            self.app.copy_to_clipboard(text)
        how = f"by {tool}" if tool else "to the terminal's clipboard"
        self.app.notify(f"Copied {what} {how}", markup=False)

    def action_point(self, right: int, down: int) -> None:
        board = self.query_one(Board)
        spots = spots_of(board.lines)
        key = moved(spots, board.key, right=right, down=down)
        board.point_at(next((spot for spot in spots if spot.key == key), None))

    def action_scroll(self, direction: int) -> None:
        board = self.query_one(Board)
        board.scroll_lines(direction * max(1, board.size.height - 1))

    def action_explain(self) -> None:
        board = self.query_one(Board)
        spots = spots_of(board.lines)
        spot = next((one for one in spots if one.key == board.key), None)
        if spot is None:
            self.action_point(1, 0)
            self.app.notify(self.CHOOSING, markup=False)
        else:
            self._explain(spot)

    def on_click(self, event: events.Click) -> None:
        board = self.query_one(Board)
        if event.widget is board:
            spot = board.spot_under(event.x, event.y)
            if spot is not None:
                board.point_at(spot)
                self._explain(spot)

    def _explain(self, spot: Spot) -> None:
        self.app.push_screen(ExplainFigureScreen(explanation(spot)))

    def action_command(self, command: str) -> None:
        self._carry_out(command)

    def action_leave(self, mode: str) -> None:
        self.dismiss(PanelMode(mode))
