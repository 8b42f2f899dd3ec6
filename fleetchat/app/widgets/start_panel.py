"""What the program does before the fleet is ready."""

from __future__ import annotations

from textual.widgets import Static

from fleetchat.app.stage_table import one_line
from fleetchat.app.words import progress_line


class StartPanel(Static):
    """One line of progress above the prompt, gone when the fleet is ready."""

    DEFAULT_CSS = """
    StartPanel { height: auto; max-height: 3; padding: 0 2; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__("Starting …", id="start-panel", markup=False)

    def show_build(self, step: str, done: int, total: int) -> None:
        width = self.app.size.width - 4
        self._show(progress_line(f"First run: {one_line(step)}", done, total, width))

    def show_text(self, text: str) -> None:
        self._show(f"{one_line(text)} …")

    def hide(self) -> None:
        self.display = False

    def _show(self, line: str) -> None:
        self.display = True
        self.update(line)
