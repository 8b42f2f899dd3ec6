"""The first line: what is served, and how it is."""

from __future__ import annotations

from rich.cells import cell_len
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
        self._drawn = ""

    def show(self, parts: tuple[str, ...], state: str) -> None:
        self._parts, self._state = parts, state
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        room = max(0, self.app.size.width - 4 - len(self._state) - 2)
        line = f"{fitted(what_fits(('fleetchat', *self._parts), room), room)}  {self._state}"
        if line != self._drawn:  # it is shown anew with every snapshot, and its height never changes
            self._drawn = line
            self.update(line, layout=False)


def what_fits(parts: tuple[str, ...], room: int) -> str:
    """The parts in one line, the last ones left out where there is no room (pure)."""
    told = [one_line(part) for part in parts if part]  # program and model stay in any case
    while len(told) > 2 and cell_len(" · ".join(told)) > room:
        told.pop()
    return " · ".join(told)
