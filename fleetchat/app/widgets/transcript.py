"""The conversation on the screen: follows the newest text, and holds still when the user scrolled up."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from fleetchat.app.widgets.message_view import MessageView
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.chat.sanitise import sanitise

# Rows from the end within which scrolling down follows again. While text streams the end moves on,
# so that waiting for the exact end would never follow again.
FOLLOW_TOLERANCE = 2


class Transcript(VerticalScroll, can_focus=False):
    """Messages and replies in order. It never takes the focus: keys always go to the prompt."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 1 2 0 2;
        align-vertical: bottom;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    Transcript .empty { color: $secondary; }
    """

    @dataclass
    class FollowChanged(Message):
        """The transcript began or ceased to follow the newest text."""

        following: bool

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.following = True
        self._empty = Static("", markup=False, classes="empty")

    def compose(self) -> ComposeResult:
        yield self._empty

    def on_mount(self) -> None:
        self.anchor()

    def describe_empty(self, text: str) -> None:
        """What stands here before the first message."""
        self._empty.update(sanitise(text))

    async def add_message(self, text: str) -> None:
        self._empty.display = False
        await self.mount(MessageView(text))
        self.follow()

    async def begin_reply(self, author: str) -> ReplyView:
        reply = ReplyView(author)
        await self.mount(reply)
        return reply

    async def clear(self) -> None:
        """Begin an empty transcript."""
        await self.query("MessageView, ReplyView").remove()
        self._empty.display = True
        self.follow()

    def follow(self) -> None:
        """Go to the newest text and stay there."""
        self.anchor()
        self._set_following(True)

    def release_anchor(self) -> None:
        """Textual calls this for every scroll of the user: hold still from now on."""
        if self.max_scroll_y > 0:
            super().release_anchor()
            self._set_following(False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        near_end = self.max_scroll_y - new_value <= FOLLOW_TOLERANCE
        if not self.following and new_value > old_value and near_end:
            self.follow()

    def _set_following(self, following: bool) -> None:
        if self.following != following:
            self.following = following
            self.post_message(self.FollowChanged(following))
