"""What a person wrote, in the transcript."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import Node


class MessageView(Vertical):
    """A message of the user, as plain text: never markup."""

    DEFAULT_CSS = """
    MessageView { height: auto; margin: 0 0 1 0; }
    MessageView .author { text-style: bold; color: $accent; }
    MessageView .text { padding: 0 0 0 2; }
    """

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node

    def compose(self) -> ComposeResult:
        yield Static("You", markup=False, classes="author")
        yield Static(sanitise(self.node.text), markup=False, classes="text")
