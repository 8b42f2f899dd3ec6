"""A recording of the fleet, played on the whole screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from fleetchat.app.cells import fitted, one_line
from fleetchat.app.panel.numbers import gauge
from fleetchat.app.panel.playback import Playback, clock_words
from fleetchat.app.panel.view import PanelView
from fleetchat.app.screens.fleet import Board, FleetScreen

INTERVAL = 0.25  # seconds
SEEK = 5.0  # seconds
NARROW = 100  # cells below which the bar is short


class ReplayScreen(FleetScreen):
    """The panel as it was. Instead of a fleet there is a position in a file."""

    DEFAULT_CSS = """
    ReplayScreen > #position { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", id="replay.pause", tooltip="Stand still, or go on"),
        Binding("left", f"seek({-SEEK})", "Seek", id="replay.back", key_display="←→"),
        Binding("right", f"seek({SEEK})", "Forward", id="replay.forward", show=False),
        Binding("home", "rewind", "First", id="replay.first", show=False),
        Binding("end", "last", "Last", id="replay.last", show=False),
        Binding("left_square_bracket", "faster(-1)", "Speed", id="replay.slower", key_display="[]"),
        Binding("right_square_bracket", "faster(1)", "Faster", id="replay.faster", show=False),
        Binding("escape,q", "app.quit", "Quit", id="replay.quit", tooltip="Leave"),
        Binding("f9", "app.quit", "Quit", id="replay.hide", show=False),
    ]

    CHOOSING = "↑ ↓ and Tab choose a figure, F1 explains it"  # ← and → seek

    def __init__(self, playback: Playback, name: str) -> None:
        super().__init__(playback.model)
        self._playback = playback
        self._file = one_line(name)

    def compose(self) -> ComposeResult:
        yield Static("", id="position", markup=False)
        yield Board()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(INTERVAL, self._advance)

    @property
    def view(self) -> PanelView | None:
        return self._playback.model.view

    def _advance(self) -> None:
        before = (self._playback.position, self._playback.paused)
        self._playback.advance(INTERVAL)
        if (self._playback.position, self._playback.paused) != before:
            self.draw()

    def draw(self) -> None:
        super().draw()
        self.query_one("#position", Static).update(
            position_line(self._playback, self._file, self.size.width - 2)
        )

    def action_pause(self) -> None:
        self._playback.toggle()
        self.draw()

    def action_step(self, steps: int) -> None:
        self._playback.step(steps)
        self.draw()

    def action_seek(self, seconds: float) -> None:
        self._playback.seek(self._playback.position + seconds)
        self.draw()

    def action_rewind(self) -> None:
        self._playback.seek(0.0)
        self.draw()

    def action_last(self) -> None:
        self._playback.seek(self._playback.recording.length)
        self.draw()

    def action_faster(self, steps: int) -> None:
        self._playback.faster(steps)
        self.draw()


def position_line(playback: Playback, file: str, width: int) -> str:
    """`▶ 1x  00:12 of 03:10  ███░░░  14:03:59  run.jsonl`."""
    length = playback.recording.length
    sign = "■ " if playback.at_end and playback.paused else "‖ " if playback.paused else "▶ "
    share = playback.position / length if length else 1.0
    view = playback.model.view
    day = view.time_of_day(view.snapshot.taken) if view is not None else ""
    bar = gauge(share, 10 if width < NARROW else 30)
    times = f"{clock_words(playback.position)} of {clock_words(length)}"
    return fitted(f"{sign}{playback.speed:g}x  {times}  {bar}  {day}  {file}", width)
