"""The line of tabs: click one to show it, `+` for a new chat."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from fleetchat.app.events import ChatNumber
from fleetchat.app.tab_strip import MORE_LEFT, MORE_RIGHT, Piece, TabLabel, strip

NEW = " + "


class TabBar(Static):
    """Shows labels; what a click means is told by a message."""

    DEFAULT_CSS = """
    TabBar { height: 1; padding: 0 1; background: $surface; color: $foreground; }
    """

    @dataclass
    class Chosen(Message):
        """A tab was clicked."""

        number: ChatNumber

    @dataclass
    class CloseWanted(Message):
        """A tab was clicked with the middle button."""

        number: ChatNumber

    class NewWanted(Message):
        """`+` was clicked."""

    def __init__(self) -> None:
        super().__init__("", id="tabs", markup=False)
        self._labels: list[TabLabel] = []
        self._active = ChatNumber(0)
        self._pieces: list[Piece] = []
        self._end = 0

    def show(self, labels: list[TabLabel], active: ChatNumber) -> None:
        if (labels, active) != (self._labels, self._active):
            self._labels, self._active = labels, active
            self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self._labels:
            return
        width = max(1, self.app.size.width - 2 - len(NEW))
        self._pieces, left, right = strip(self._labels, self._active, width)
        line = Content(MORE_LEFT if left else "")
        for piece in self._pieces:
            text = Content(piece.text)
            line += text.stylize("bold reverse") if piece.active else text
        self._end = (self._pieces[-1].start + self._pieces[-1].width) + (len(MORE_RIGHT) if right else 0)
        self.update(line + Content(MORE_RIGHT if right else "") + Content(NEW), layout=False)

    def on_click(self, event: events.Click) -> None:
        cell = event.x - 1  # the padding
        for piece in self._pieces:
            if piece.start <= cell < piece.start + piece.width:
                wanted = self.CloseWanted if event.button == 2 else self.Chosen
                self.post_message(wanted(piece.number))
                return
        if self._end <= cell < self._end + len(NEW):
            self.post_message(self.NewWanted())
