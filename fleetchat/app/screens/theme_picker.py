"""Choosing the colours: the whole screen shows the theme that is pointed at."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue


class ThemePicker(Dialogue[None]):
    """`remember` is told the theme that was chosen; Esc goes back to the one before."""

    DEFAULT_CSS = """
    ThemePicker { align: right middle; background: transparent; }
    ThemePicker > Vertical {
        width: 40; max-width: 100%; height: 90%; max-height: 30;
        border: round $primary; background: $surface; padding: 0 1;
    }
    ThemePicker OptionList { height: 1fr; padding: 0; background: $surface; }
    ThemePicker .hint { color: $secondary; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: the colours",
        ("↑ ↓", "See another theme at once"),
        ("Enter", "Keep it, also for the next runs"),
        ("Esc", "Back to the colours before"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="theme.back", tooltip="Keep the colours as they were"),
    ]

    def __init__(self, remember: Callable[[str], None]) -> None:
        super().__init__()
        self._remember = remember

    def compose(self) -> ComposeResult:
        self._before = self.app.theme
        own = [name for name in self.app.available_themes if not name.startswith(("textual-", "ansi-"))]
        others = sorted(name for name in self.app.available_themes if name not in own)
        self._names = [*sorted(own, key=lambda name: (not name.startswith("fleet-"), name)), *others]
        with Vertical() as panel:
            panel.border_title = Content("Theme")
            options = OptionList(*(Option(Content(self._words(name))) for name in self._names), compact=True)
            options.highlighted = self._names.index(self._before)
            yield options
            yield Static("Enter keeps it, Esc goes back.", markup=False, classes="hint")

    def _words(self, name: str) -> str:
        theme = self.app.get_theme(name)
        return f"{name}  {'dark' if theme is None or theme.dark else 'light'}"

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = self._names[event.option_index]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        name = self._names[event.option_index]
        self.app.theme = name
        self._remember(name)
        self.dismiss(None)

    def action_leave(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)
