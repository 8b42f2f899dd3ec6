"""The fleet failed: one clear line, what to do, and two ways on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Static

from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue
from fleetchat.chat.sanitise import sanitise


class FailureScreen(Dialogue[bool]):
    """Closes with True to try again, False to go back and read."""

    DEFAULT_CSS = """
    FailureScreen { align: center middle; }
    FailureScreen > VerticalScroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: round $error; background: $surface; padding: 1 2;
    }
    FailureScreen .message { margin: 0 0 1 0; }
    FailureScreen .hint { margin: 0 0 1 0; color: $secondary; }
    FailureScreen Horizontal { height: auto; align-horizontal: right; }
    FailureScreen Button { margin: 0 0 0 2; }
    FailureScreen.-tiny > VerticalScroll { padding: 0 1; }
    FailureScreen.-tiny .message, FailureScreen.-tiny .hint { margin: 0; }
    FailureScreen.-tiny Horizontal { display: none; }  /* the reason needs the room; the keys do the same */
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: the fleet is not running",
        ("R, Enter", "Start it again"),
        ("Esc", "Back to the chat, to read"),
        ("", "`fleetchat doctor` in a shell tells more"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,enter", "answer(True)", "Try again", id="failure.retry", tooltip="Start the fleet again"),
        Binding("escape", "answer(False)", "Back", id="failure.back", tooltip="Back to the chat"),
    ]

    def __init__(self, message: str, hint: str) -> None:
        super().__init__()
        self._message = message
        self._hint = hint

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as panel:
            panel.border_title = "The fleet is not running"
            yield Static(sanitise(self._message), markup=False, classes="message")
            if self._hint:
                yield Static(f"hint: {sanitise(self._hint)}", markup=False, classes="hint")
            yield Static("R tries again, Esc goes back to the chat.", markup=False, classes="hint")
            with Horizontal():
                yield Button("Leave (Ctrl+Q)", id="leave")
                yield Button("Try again (R)", id="retry", variant="primary")

    def on_mount(self) -> None:
        self.query_one("#retry").focus()

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "retry":
            self.dismiss(True)
        else:
            await self.run_action("app.quit")

    def action_answer(self, again: bool) -> None:
        self.dismiss(again)
