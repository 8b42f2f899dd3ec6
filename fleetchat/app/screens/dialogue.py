"""What all dialogues share: F1 tells what can be done in them."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, ScreenResultType

from fleetchat.app.help_text import EVERYWHERE, HelpGroup
from fleetchat.app.screens.help import HelpScreen


class Dialogue(ModalScreen[ScreenResultType]):
    """A question above the chat."""

    HELP_HERE: ClassVar[HelpGroup]

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "explain", "Help", id="dialogue.help", show=False, tooltip="What can be done here"),
    ]

    def action_explain(self) -> None:
        self.app.push_screen(HelpScreen([self.HELP_HERE, EVERYWHERE]))
