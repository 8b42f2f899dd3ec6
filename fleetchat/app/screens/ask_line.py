"""A question with one line as its answer."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from fleetchat.app.cells import one_line
from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue


class AskLineScreen(Dialogue[str | None]):
    """Closes with what was typed, None when it was left."""

    DEFAULT_CSS = """
    AskLineScreen { align: center middle; }
    AskLineScreen > Vertical {
        width: 64; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface; padding: 0 1;
    }
    AskLineScreen Input { background: $panel; color: $foreground; }
    AskLineScreen .hint { color: $secondary; margin: 1 0 0 0; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: one line is asked for",
        ("Enter", "Accept what is typed"),
        ("Esc", "Change nothing"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="ask.back", tooltip="Change nothing"),
    ]

    def __init__(self, title: str, value: str) -> None:
        super().__init__()
        self._title = title
        self._value = one_line(value)

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = Content(self._title)
            yield Input(self._value, select_on_focus=True, compact=True)
            yield Static("Enter accepts, Esc changes nothing.", markup=False, classes="hint")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)
