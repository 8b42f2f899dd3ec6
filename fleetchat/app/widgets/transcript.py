"""The conversation on the screen: follows the newest text, and holds still when the user scrolled up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from fleetchat.app.widgets.message_view import MessageView
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.app.widgets.settled_size import SettledSize
from fleetchat.app.words import counted
from fleetchat.chat.messages import Role
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import MessageId, Node, Status
from fleetchat.chat.turn import unanswered

# Rows from the end within which scrolling down follows again. While text streams the end moves on,
# so that waiting for the exact end would never follow again.
FOLLOW_TOLERANCE = 2
WINDOW = 24  # messages that are mounted at once when a chat is opened, and more each time the top is reached
WINDOW_LIMIT = 96  # beyond it the oldest are taken away again while the newest text is followed

MessageWidget = MessageView | ReplyView


class Transcript(VerticalScroll, SettledSize, can_focus=False):
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
    Transcript .earlier { color: $secondary; text-align: center; display: none; }
    """

    @dataclass
    class FollowChanged(Message):
        """The transcript began or ceased to follow the newest text."""

        following: bool

    class EarlierWanted(Message):
        """The user came to the first message that is mounted."""

    def __init__(self) -> None:
        super().__init__()
        self.following = True
        self.context = 0
        self._path: tuple[Node, ...] = ()
        self._first = 0  # place of the first message that is mounted
        self._views: list[MessageWidget] = []
        self._versions: Mapping[MessageId, str] = {}
        self.selected: MessageId | None = None
        self._empty = Static("", markup=False, classes="empty")
        self._earlier = Static("", markup=False, classes="earlier")

    def compose(self) -> ComposeResult:
        yield self._empty
        yield self._earlier

    def on_mount(self) -> None:
        self.anchor()

    @property
    def views(self) -> Sequence[MessageWidget]:
        """The messages that are mounted."""
        return self._views

    def describe_empty(self, text: str) -> None:
        """What stands here before the first message."""
        self._empty.update(sanitise(text))

    async def show(self, path: tuple[Node, ...], versions: Mapping[MessageId, str]) -> None:
        """Show these messages. What is mounted already is kept as far as it is the same.

        `versions` has words for messages of which there are others.
        """
        self._versions = versions
        if all(node.id != self.selected for node in path):
            self.selected = None
        same = self._same(path)
        for view in self._views[same:]:
            await view.remove()
        del self._views[same:]
        if not same:
            self._first = max(0, len(path) - WINDOW)
        for view, node in zip(self._views, path[self._first :], strict=False):
            if view.node is not node:
                await self._renew(view, node)
        fresh = [self._view_of(node) for node in path[self._first + same :]]
        self._views += fresh
        self._path = path
        await self.mount_all(fresh)
        await self._trim()
        self._describe()

    def _same(self, path: tuple[Node, ...]) -> int:
        """How many of the mounted messages stay."""
        same = 0
        for view, node in zip(self._views, path[self._first :], strict=False):
            if view.node.id != node.id:
                break
            same += 1
        return same

    async def _renew(self, view: MessageWidget, node: Node) -> None:
        if isinstance(view, ReplyView):
            await view.show(node)
        else:
            view.node = node

    async def update_reply(self, node: Node) -> None:
        """The last message has changed: more text, or its end."""
        self._path = (*self._path[:-1], node)
        if self._views and isinstance(view := self._views[-1], ReplyView) and view.node.id == node.id:
            await view.show(node)
        if node.status is not Status.WRITING and not node.text:
            self._describe()

    async def show_earlier(self) -> None:
        """Mount messages before the first one; what stands on the screen stays where it is."""
        first = max(0, self._first - WINDOW)
        if first == self._first:
            return
        fresh = [self._view_of(node) for node in self._path[first : self._first]]
        anchor, before = self._views[0], self._views[0].virtual_region.y
        self._views[:0] = fresh
        self._first = first
        self._describe()
        await self.mount_all(fresh, before=anchor)
        self.call_after_refresh(self._keep_place, anchor, before)

    def _keep_place(self, anchor: MessageWidget, before: int) -> None:
        moved = anchor.virtual_region.y - before
        if not self.following and moved > 0:
            self.scroll_to(y=self.scroll_y + moved, animate=False, immediate=True)

    async def _trim(self) -> None:
        """A chat that grows for hours does not grow on the screen."""
        surplus = len(self._views) - WINDOW_LIMIT
        if self.following and surplus > 0:
            for view in self._views[:surplus]:
                await view.remove()
            del self._views[:surplus]
            self._first += surplus

    def _view_of(self, node: Node) -> MessageWidget:
        return MessageView(node) if node.role is Role.USER else ReplyView(node, self.context)

    def _describe(self) -> None:
        left_out = unanswered(self._path)
        for view in self._views:
            number = view.node.id
            if isinstance(view, MessageView):
                view.tell_unanswered(number in left_out)
            view.describe(version=self._versions.get(number, ""), selected=number == self.selected)
        self._empty.display = not self._path
        self._earlier.display = self._first > 0
        self._earlier.update(f"{counted(self._first, 'earlier message')}: scroll up")

    def select(self, places: int) -> None:
        """Point at the message before or after; behind the last one at none."""
        ids = [view.node.id for view in self._views]
        if not ids:
            return
        place = ids.index(self.selected) if self.selected in ids else len(ids)
        place = max(0, place + places)
        self.point_at(ids[place] if place < len(ids) else None)

    def point_at(self, message: MessageId | None) -> None:
        self.selected = message
        self._describe()
        view = next((view for view in self._views if view.node.id == message), None)
        if view is None:
            self.follow()
        else:
            self.scroll_to_widget(view, animate=False, force=True)
            if self.max_scroll_y - self.scroll_y > FOLLOW_TOLERANCE:
                self.release_anchor()

    def toggle_thoughts(self) -> bool:
        """Fold or unfold all of them, or the selected one; False when there is none."""
        replies = [view for view in self._views if isinstance(view, ReplyView)]
        if self.selected is not None:
            replies = [view for view in replies if view.node.id == self.selected]
        folded = [view.toggle_thought() for view in replies]
        return any(folded)

    def on_click(self, event: events.Click) -> None:
        """A click on a message selects it, a second one leaves it."""
        widget = event.widget
        while widget is not None and widget is not self:
            if isinstance(widget, MessageView | ReplyView):
                number = widget.node.id
                self.selected = None if number == self.selected else number
                self._describe()
                return
            widget = widget.parent if isinstance(widget.parent, Widget) else None

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
        if new_value < old_value:
            self.want_earlier()

    def want_earlier(self) -> None:
        """The user looks for what stands above: ask for it, when the top is reached."""
        if self._first > 0 and self.scroll_y <= 0 and not self.following:
            self.post_message(self.EarlierWanted())

    def on_mouse_scroll_up(self) -> None:
        self.want_earlier()

    def _set_following(self, following: bool) -> None:
        if self.following != following:
            self.following = following
            self.post_message(self.FollowChanged(following))
