"""A reply of the model: who, what it thought, what it says, what it cost."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from fleetchat.app.blocks import split_thought
from fleetchat.app.widgets.reply_text import ReplyText
from fleetchat.app.widgets.thought_view import ThoughtView
from fleetchat.app.words import reply_footer
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import Node, Status


class ReplyView(Vertical):
    """Shows one node. `grow` while it is written, `finish` at its end."""

    DEFAULT_CSS = """
    ReplyView { height: auto; margin: 0 0 1 0; }
    ReplyView .author { text-style: bold; color: $primary; }
    ReplyView .footer { padding: 0 0 0 2; color: $secondary; display: none; }
    """

    def __init__(self, node: Node, context: int) -> None:
        super().__init__()
        self.node = node
        self._context_tokens = context
        self._shown = ""  # the reply without its thought, as it was given to the widget
        self._thought = ThoughtView()
        self._thought.display = False
        self._text = ReplyText()
        self._footer = Static("", markup=False, classes="footer")

    @property
    def text(self) -> str:
        """What is shown of the reply."""
        return self._text.source

    def compose(self) -> ComposeResult:
        yield Static(sanitise(self.node.model), markup=False, classes="author")
        yield self._thought
        yield self._text
        yield self._footer

    async def on_mount(self) -> None:
        await self.show(self.node)

    async def show(self, node: Node) -> None:
        """The node as it is now."""
        self.node = node
        parts = split_thought(sanitise(node.text))
        self._thought.display = parts.thought is not None
        if parts.thought is not None:
            self._thought.show(parts.thought, thinking=parts.thinking)
        if node.status is Status.WRITING:
            await self._grow(parts.reply)
        else:
            await self._finish(parts.reply)

    async def _grow(self, reply: str) -> None:
        self._footer.display = False
        if not reply.startswith(self._shown):  # a CR that became CRLF, or a thought that began late
            await self._text.finish("")
            self._text.restart()
            self._shown = ""
        if len(reply) > len(self._shown):
            await self._text.append(reply[len(self._shown) :])
            self._shown = reply

    async def _finish(self, reply: str) -> None:
        self._shown = reply
        await self._text.finish(reply if reply.strip() else "")
        self._text.display = bool(reply.strip())
        self._footer.update(sanitise(reply_footer(self.node, self._context_tokens)))
        self._footer.display = True
