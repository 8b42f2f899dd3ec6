"""What a model thought before it answered, folded to one line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from fleetchat.app.words import counted


class ThoughtView(Vertical):
    """A click unfolds it. Takes sanitised text."""

    DEFAULT_CSS = """
    ThoughtView { height: auto; padding: 0 0 0 2; color: $secondary; }
    ThoughtView .thought { display: none; padding: 0 0 0 2; }
    ThoughtView.-open .thought { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._thinking = False
        self._head = Static("", markup=False)
        self._body = Static("", markup=False, classes="thought")

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._body

    def show(self, text: str, *, thinking: bool) -> None:
        self.text, self._thinking = text, thinking
        self._draw()

    def toggle(self) -> None:
        self.toggle_class("-open")
        self._draw()

    def on_click(self) -> None:
        self.toggle()

    def _draw(self) -> None:
        sign = "▾" if self.has_class("-open") else "▸"
        words = counted(len(self.text.split()), "word")
        self._head.update(f"{sign} {'Thinking' if self._thinking else 'Thought'}, {words}")
        if self.has_class("-open"):
            self._body.update(self.text)
