"""One of several things, from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from fleetchat.app.cells import one_line
from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue


class ChooseScreen(Dialogue[int | None]):
    """Closes with the place of what was chosen, None when it was left."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; }
    ChooseScreen > Vertical {
        width: 64; max-width: 100%; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 0 1;
    }
    ChooseScreen OptionList { height: auto; max-height: 20; padding: 0; background: $surface; }
    ChooseScreen .hint { color: $secondary; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: one of a list is asked for",
        ("↑ ↓", "Point at another one"),
        ("Enter", "Take it; a click does too"),
        ("Esc", "Change nothing"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="choose.back", tooltip="Change nothing"),
    ]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = Content(self._title)
            yield OptionList(*(Option(Content(one_line(line))) for line in self._lines), compact=True)
            yield Static("Enter takes it, Esc goes back.", markup=False, classes="hint")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_leave(self) -> None:
        self.dismiss(None)
