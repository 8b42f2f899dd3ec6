"""What one can do: here and now first, then every key and every command, by group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from fleetchat.app.help_text import HelpGroup, HelpRow

KEYS_WIDTH, SLASH_WIDTH = 17, 10


class HelpScreen(ModalScreen[None]):
    """Shows groups of keys and commands."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        scrollbar-size-vertical: 1;
        width: 96; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface; padding: 0 2;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "app.pop_screen", "Back", id="help.back", tooltip="Back to where you were"),
    ]

    def __init__(self, groups: Iterable[HelpGroup]) -> None:
        super().__init__()
        self._groups = tuple(groups)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as panel:
            panel.border_title = Content("Help")
            panel.border_subtitle = Content("↑ ↓ PgDn scroll, Esc goes back")
            yield Static(Content("\n").join(help_lines(self._groups)), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_lines(groups: Iterable[HelpGroup]) -> list[Content]:
    """Keys, slash command and meaning, in columns."""
    lines: list[Content] = []
    for group in groups:
        lines += [Content("")] if lines else []
        lines += [Content(group.title).stylize("bold"), *map(_line, group.rows)]
    return lines


def _line(row: HelpRow) -> Content:
    return Content(f"  {row.keys:<{KEYS_WIDTH}} {row.slash:<{SLASH_WIDTH}} {row.meaning}")
