"""Plain text that changes many times a second."""

from __future__ import annotations

from textual.widgets import Static

from fleetchat.app.widgets.settled_size import SettledSize


class GrowingText(Static, SettledSize):
    """The screen is laid out anew only when the text takes another number of lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text, markup=False, classes="tail")
        self._text = text

    def show(self, text: str) -> None:
        """Show another text."""
        if text == self._text:
            return
        self._text = text
        self.update(text, layout=False)
        self.clear_cached_dimensions()
        width, height = self.content_size
        if not width or self.visual.get_height(self.styles.get_rules(), width) != height:
            self.refresh(layout=True)
