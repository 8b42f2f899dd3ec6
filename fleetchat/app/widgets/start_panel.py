"""What the program does before the fleet is ready."""

from __future__ import annotations

import time

from textual import events
from textual.widgets import Static

from fleetchat.app.cells import one_line
from fleetchat.app.words import progress_line

PATIENCE = 3.0  # seconds after which a step that cannot be counted tells how long it takes already


class StartPanel(Static):
    """One line of progress above the prompt, gone when the fleet is ready."""

    DEFAULT_CSS = """
    StartPanel { height: auto; max-height: 3; padding: 0 2; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__("", id="start-panel", markup=False)
        self._step = ("Starting", 0, 0)  # words, done, total
        self._since = time.monotonic()

    def on_mount(self) -> None:
        self.set_interval(1.0, self._draw)

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def show_build(self, step: str, done: int, total: int) -> None:
        self._show(f"Shards: {one_line(step)}", done, total)

    def show_text(self, text: str) -> None:
        self._show(one_line(text), 0, 0)

    def hide(self) -> None:
        self.display = False

    def _show(self, words: str, done: int, total: int) -> None:
        if words != self._step[0]:
            self._since = time.monotonic()
        self._step = (words, done, total)
        self.display = True
        self._draw()

    def _draw(self) -> None:
        if not self.display:
            return
        words, done, total = self._step
        line = progress_line(words, done, total, self.app.size.width - 4)
        waited = time.monotonic() - self._since
        self.update(f"{line}  {waited:.0f} s" if total <= 0 and waited >= PATIENCE else line)
