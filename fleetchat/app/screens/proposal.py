"""A proposal for another cut: its table, and a question where there is something to decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, HorizontalScroll, Vertical
from textual.widgets import Button, Static

from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.screens.dialogue import Dialogue
from fleetchat.chat.sanitise import sanitise


class ProposalScreen(Dialogue[bool]):
    """Closes with True for moving to it."""

    DEFAULT_CSS = """
    ProposalScreen { align: center middle; }
    ProposalScreen > Vertical {
        width: auto; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface; padding: 1 2;
    }
    ProposalScreen HorizontalScroll { width: auto; max-width: 100%; height: auto; max-height: 16; }
    ProposalScreen HorizontalScroll Static { width: auto; }
    ProposalScreen Horizontal { width: 60; height: auto; margin: 1 0 0 0; }
    ProposalScreen Button { margin: 0 2 0 0; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: another cut is proposed",
        ("Y", "Move to it; answers go on"),
        ("N, Esc", "Leave the fleet as it is"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="proposal.yes", tooltip="Move to it"),
        Binding("n,escape", "answer(False)", "No", id="proposal.no", tooltip="Leave the fleet as it is"),
    ]

    def __init__(self, lines: Sequence[str], *, asks: bool) -> None:
        """`asks` False: there is nothing to move to."""
        super().__init__()
        self._lines = lines
        self._asks = asks

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = "Rebalance"
            with HorizontalScroll():
                yield Static(sanitise("\n".join(self._lines)), markup=False)
            with Horizontal():
                yield Button("Keep (N)" if self._asks else "Close (N)", id="no", compact=True)
                if self._asks:
                    yield Button("Move (Y)", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, sure: bool) -> None:
        self.dismiss(sure and self._asks)
