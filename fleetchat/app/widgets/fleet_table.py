"""The stage table below the prompt."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import Static

from fleetchat.app.stage_table import table_lines
from fleetchat.fleet.telemetry import FleetSnapshot


class FleetTable(Static):
    """Shows a snapshot of the fleet; knows nothing else of it."""

    DEFAULT_CSS = """
    FleetTable { height: auto; padding: 0 2; color: $foreground; display: none; }
    """

    def __init__(self) -> None:
        super().__init__("", id="fleet-table", markup=False)
        self._snapshot: FleetSnapshot | None = None
        self._lines: list[str] = []

    def show(self, snapshot: FleetSnapshot | None) -> None:
        self._snapshot = snapshot
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        self.set_class(self._snapshot is not None, "-shown")
        if self._snapshot is None:
            self._lines = []
            return
        screen = self.app.size
        lines = table_lines(self._snapshot, max(1, screen.width - 4), screen.height // 3)
        if lines == self._lines:
            return
        resized = len(lines) != len(self._lines)
        self._lines = lines
        head, *rows = [Content(line) for line in lines]
        self.update(Content("\n").join([head.stylize("bold") if rows else head, *rows]), layout=resized)
