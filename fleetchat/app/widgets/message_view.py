"""What a person wrote, in the transcript."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from fleetchat.app.words import UNANSWERED
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import Node


def author_line(author: str, version: str, selected: bool) -> str:
    """`▸ You  2 of 3`."""
    parts = ("▸" if selected else "", sanitise(author), f" {version}" if version else "")
    return " ".join(part for part in parts if part)


class MessageView(Vertical):
    """A message of the user, as plain text: never markup."""

    DEFAULT_CSS = """
    MessageView { height: auto; margin: 0 0 1 0; }
    MessageView.-selected { background: $panel; }
    MessageView .author { text-style: bold; color: $accent; }
    MessageView .text { padding: 0 0 0 2; }
    MessageView .footer { padding: 0 0 0 2; color: $secondary; display: none; }
    """

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self._author = Static("You", markup=False, classes="author")
        self._footer = Static(UNANSWERED, markup=False, classes="footer")

    def describe(self, *, version: str, selected: bool) -> None:
        """Which of several versions it is, and whether it is selected."""
        self.set_class(selected, "-selected")
        self._author.update(author_line("You", version, selected))

    def tell_unanswered(self, unanswered: bool) -> None:
        """Whether the model does not see this message in later turns."""
        self._footer.display = unanswered

    def compose(self) -> ComposeResult:
        yield self._author
        yield Static(sanitise(self.node.text), markup=False, classes="text")
        yield self._footer
