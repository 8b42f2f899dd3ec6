"""What one can do: every key and every command, by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from fleetchat.app.commands import COMMANDS, NUMBERED, Command

FIXED = (
    ("Enter", "", "Send the message"),
    ("Ctrl+J", "", "New line (also Shift+Enter, Alt+Enter)"),
    ("↑ ↓", "", "What you typed before (first, last line)"),
    ("Tab", "", "Complete a command that begins with /"),
    ("PgUp PgDn", "", "Scroll; Ctrl+↑ and Ctrl+↓ by a line"),
    ("Ctrl+P", "", "All commands, by name"),
    ("Ctrl+C", "", "Copy what is selected; twice: leave"),
    ("Ctrl+Q", "", "Leave, always"),
)
KEYS_WIDTH, SLASH_WIDTH = 17, 10


class HelpScreen(ModalScreen[None]):
    """`key_names` gives a command's keys as people write them."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 96; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface; padding: 0 2;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "app.pop_screen", "Back", id="help.back", tooltip="Back to the chat"),
    ]

    def __init__(self, key_names: Callable[[Command], str]) -> None:
        super().__init__()
        self._key_names = key_names

    def compose(self) -> ComposeResult:
        with VerticalScroll() as panel:
            panel.border_title = Content("Help")
            panel.border_subtitle = Content("Esc goes back")
            yield Static(Content("\n").join(help_lines(self._key_names)), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_lines(key_names: Callable[[Command], str]) -> list[Content]:
    """Keys, slash command and meaning, in columns."""
    lines = [Content("Writing").stylize("bold"), *(_line(*row) for row in FIXED)]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += [Content(""), Content(group).stylize("bold")]
        members = [c for c in COMMANDS if c.group == group and c.id not in NUMBERED]
        lines += [_line(key_names(c), f"/{c.slash}" if c.slash else "", c.help) for c in members]
        if group == "Tabs":
            lines.append(_line("Alt+1 … Alt+9", "", "Chat by number, where these keys arrive"))
    return lines


def _line(keys: str, slash: str, meaning: str) -> Content:
    return Content(f"  {keys:<{KEYS_WIDTH}} {slash:<{SLASH_WIDTH}} {meaning}")
