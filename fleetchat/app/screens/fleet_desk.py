"""The desk with the fleet on it: beside the chat, below it, or on the whole screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.message import Message

from fleetchat.app.events import ChatNumber, RuntimeControl, SnapshotTaken
from fleetchat.app.keeper import Keeper
from fleetchat.app.panel.layout import PanelMode
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.pointing import explanation
from fleetchat.app.panel.stages import trouble_lines
from fleetchat.app.panel.view import PanelView
from fleetchat.app.recorder import PanelRecorder
from fleetchat.app.screens.desk import Desk
from fleetchat.app.screens.explain_figure import ExplainFigureScreen
from fleetchat.app.screens.fleet import FleetScreen
from fleetchat.app.widgets.fleet_panels import FleetLine, FleetPanel, FleetSide


class FleetDesk(Desk):
    """Keeps what is known of the fleet; draws it where it is wanted, and nowhere else."""

    DEFAULT_CSS = """
    FleetDesk > #middle { height: 1fr; }
    FleetDesk > #middle > #panes { width: 1fr; height: 1fr; }
    FleetDesk.-panel-side.-wide FleetSide { display: block; }
    FleetDesk.-panel-side.-narrow FleetLine, FleetDesk.-fleet-trouble FleetLine { display: block; }
    FleetDesk.-tiny FleetLine, FleetDesk.-tiny FleetSide { display: none; }
    """

    @dataclass
    class CommandWanted(Message, bubble=False):
        """A key was pressed, a command was chosen, a slash command was typed."""

        id: str
        argument: str = ""

    def __init__(self, runtime: RuntimeControl, keeper: Keeper, state: Path) -> None:
        super().__init__(runtime, keeper, state)
        self.fleet = PanelModel()
        self._side = FleetSide(self.fleet, "fleet-side")
        self._line = FleetLine(self.fleet, "fleet-line")
        self.panel_mode = PanelMode.SIDE
        self.command_keys: Mapping[str, str] = {}
        self.recorder: PanelRecorder | None = None

    def compose_middle(self) -> ComposeResult:
        """The chats, and the fleet beside them."""
        with Horizontal(id="middle"):
            yield Container(*self._panes.values(), id="panes")
            yield self._side

    def compose_line(self) -> ComposeResult:
        """The fleet in one line."""
        yield self._line

    def show_mode(self, mode: PanelMode) -> None:
        """Hidden, beside the chat, or on the whole screen."""
        self.panel_mode = mode
        self._place_panel()
        if mode is PanelMode.FULL:
            whole = FleetScreen(self.fleet, self.command_keys, self.action_command)
            self.app.push_screen(whole, self._after_full)
        else:
            self.draw_fleet()

    def action_command(self, command_id: str) -> None:
        """Have a command carried out, by the chats: the panel leaves the whole screen to them at once."""
        if not self.leave_full(command_id):
            self.post_message(self.CommandWanted(command_id))

    def leave_full(self, command_id: str) -> bool:
        """Go from the whole screen to what a command is for; True when that was all that it wanted.

        At once, so that the next key is the chat's.
        """
        whole = self.app.screen
        hides = command_id == "view.panel"
        if isinstance(whole, FleetScreen):
            whole.dismiss(PanelMode.HIDDEN if hides else PanelMode.SIDE)
            return hides
        return False

    def _after_full(self, mode: PanelMode | None) -> None:
        self.show_mode(mode or PanelMode.SIDE)

    def take_fleet(self, taken: SnapshotTaken) -> None:
        """A newer snapshot."""
        view = PanelView(taken.snapshot, self._places(taken.sessions))
        blocks = self.fleet.take(view)
        if self.recorder is not None:
            self.recorder.take(view, blocks)
        self._place_panel()
        self.draw_fleet()

    def end_recording(self, timeout: float) -> PanelRecorder | None:
        """Close the recording that is written, if one is; returns it."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close(timeout)
        return recorder

    def forget_fleet(self) -> None:
        """The fleet is gone."""
        self.fleet.forget()
        self._place_panel()
        self.draw_fleet()

    def draw_fleet(self) -> None:
        """Every panel decides by itself whether somebody can see it."""
        screen = self.app.screen
        if isinstance(screen, FleetScreen):
            screen.follow()
            return
        self._side.draw()
        self._line.draw()

    def _place_panel(self) -> None:
        """Show it where it is wanted. Of a hidden panel, what goes wrong or moves is shown all the same."""
        view = self.fleet.view
        beside = view is not None and self.panel_mode is PanelMode.SIDE
        hidden = view is not None and self.panel_mode is PanelMode.HIDDEN
        self._line.limit(only_trouble=hidden)
        self.set_class(beside, "-panel-side")
        trouble = trouble_lines(view.snapshot, self.size.width) if view is not None and hidden else []
        self.set_class(bool(trouble), "-fleet-trouble")

    def _places(self, sessions: Mapping[ChatNumber, int]) -> dict[int, int]:
        """Which tab is which session's, by its place in the line of tabs."""
        places = {number: place for place, number in enumerate(self.tabs.numbers, start=1)}
        return {session: places[chat] for chat, session in sessions.items() if chat in places}

    @on(FleetPanel.Explain)
    def _explain(self, event: FleetPanel.Explain) -> None:
        self.app.push_screen(ExplainFigureScreen(explanation(event.spot)))
