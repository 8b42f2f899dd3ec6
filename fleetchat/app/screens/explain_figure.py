"""A figure of the panel: what it says now, what it means, and what to do when it is bad."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from fleetchat.app.panel.pointing import Explanation


class ExplainFigureScreen(ModalScreen[None]):
    """Closes by any of the keys that people try."""

    DEFAULT_CSS = """
    ExplainFigureScreen { align: center middle; }
    ExplainFigureScreen > VerticalScroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface; padding: 0 2;
    }
    ExplainFigureScreen .value { color: $accent; }
    ExplainFigureScreen .meaning { margin: 1 0; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,enter,q,space", "app.pop_screen", "Back", id="explain.back", tooltip="Back"),
    ]

    def __init__(self, told: Explanation) -> None:
        super().__init__()
        self._told = told

    def compose(self) -> ComposeResult:
        told = self._told
        with VerticalScroll() as panel:
            panel.border_title = Content(told.title)
            panel.border_subtitle = Content("Esc goes back")
            yield Static(told.value, markup=False, classes="value")
            yield Static(told.meaning, markup=False, classes="meaning")
            yield Static(f"When it is bad: {told.when_bad}", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
