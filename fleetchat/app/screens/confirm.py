"""A question that is answered by yes or no."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Static

from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue
from fleetchat.chat.sanitise import sanitise


class ConfirmScreen(Dialogue[bool]):
    """Closes with True for yes. No is what Enter means at first."""

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Vertical {
        width: 64; max-width: 100%; height: auto; max-height: 100%;
        border: round $warning; background: $surface; padding: 1 2;
    }
    ConfirmScreen Horizontal { height: auto; align-horizontal: right; margin: 1 0 0 0; }
    ConfirmScreen Button { margin: 0 0 0 2; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: are you sure?",
        ("Y", "Yes, do it"),
        ("N, Esc", "No, change nothing"),
        ("Tab, Enter", "The other button, press it"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes", tooltip="Do it"),
        Binding("n,escape", "answer(False)", "No", id="confirm.no", tooltip="Change nothing"),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(sanitise(self._question), markup=False)
            with Horizontal():
                yield Button("Keep (N)", id="no")
                yield Button(f"{self._yes} (Y)", id="yes", variant="error")

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, sure: bool) -> None:
        self.dismiss(sure)
