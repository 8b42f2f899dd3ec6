"""A reply of the model: who, what it thought, what it says, what it cost."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from fleetchat.app.blocks import split_thought
from fleetchat.app.widgets.message_view import author_line
from fleetchat.app.widgets.reply_text import ReplyText
from fleetchat.app.widgets.settled_size import SettledSize
from fleetchat.app.widgets.thought_view import ThoughtView
from fleetchat.app.words import reply_footer
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import Node, Status


class ReplyView(Vertical, SettledSize):
    """Shows one node. `grow` while it is written, `finish` at its end."""

    DEFAULT_CSS = """
    ReplyView { height: auto; margin: 0 0 1 0; }
    ReplyView.-selected { background: $panel; }
    ReplyView .author { text-style: bold; color: $primary; }
    ReplyView .footer { padding: 0 0 0 2; color: $secondary; display: none; }
    """

    def __init__(self, node: Node, context: int) -> None:
        super().__init__()
        self.node = node
        self._context_tokens = context
        self._author = Static(sanitise(node.model), markup=False, classes="author")
        self._shown = ""  # the reply without its thought, as it was given to the widget
        self._finished = False
        self._thought = ThoughtView()
        self._thought.display = False
        self._text = ReplyText()
        self._footer = Static("", markup=False, classes="footer")

    def describe(self, *, version: str, selected: bool) -> None:
        """Which of several versions it is, and whether it is selected."""
        self.set_class(selected, "-selected")
        self._author.update(author_line(self.node.model, version, selected))

    def toggle_thought(self) -> bool:
        """Fold or unfold; False when there is no thought."""
        if self._thought.display:
            self._thought.toggle()
        return self._thought.display

    @property
    def text(self) -> str:
        """What is shown of the reply."""
        return self._text.source

    def compose(self) -> ComposeResult:
        yield self._author
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
        if self._finished or not reply.startswith(self._shown):  # continued, or a thought that began late
            self._finished, self._shown = False, ""
            await self._text.restart()
        if len(reply) > len(self._shown):
            await self._text.append(reply[len(self._shown) :])
            self._shown = reply

    async def _finish(self, reply: str) -> None:
        self._shown, self._finished = reply, True
        await self._text.finish(reply if reply.strip() else "")
        self._text.display = bool(reply.strip())
        self._footer.update(sanitise(reply_footer(self.node, self._context_tokens)))
        self._footer.display = True
