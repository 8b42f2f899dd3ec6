"""The first line: what is served, and how it is."""

from __future__ import annotations

from textual import events
from textual.widgets import Static

from fleetchat.app.cells import fitted, one_line


class HeaderLine(Static):
    """Program, model and fleet on the left, the state in words on the right."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; padding: 0 2; background: $panel; color: $foreground; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__("fleetchat", id="header", markup=False)
        self._parts: tuple[str, ...] = ()
        self._state = ""

    def show(self, parts: tuple[str, ...], state: str) -> None:
        self._parts, self._state = parts, state
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        left = one_line(" · ".join(("fleetchat", *(part for part in self._parts if part))))
        room = max(0, self.app.size.width - 4 - len(self._state) - 2)
        self.update(f"{fitted(left, room)}  {self._state}")
