"""Stored chats: the newest, or those in which a text was found; Enter opens one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from fleetchat.app.cells import one_line
from fleetchat.app.help_text import HelpGroup, dialogue_help
from fleetchat.app.keeper import Keeper
from fleetchat.app.screens.dialogue import Dialogue
from fleetchat.app.words import counted
from fleetchat.chat.history import ChatId, ChatSummary, Hit

NEWEST = 200  # chats that are listed while nothing is typed
PAUSE = 0.15  # seconds without a key before the store is asked


class FindChatScreen(Dialogue[ChatId | None]):
    """Closes with the chat to open, None when it was left."""

    DEFAULT_CSS = """
    FindChatScreen { align: center middle; }
    FindChatScreen > Vertical {
        width: 90; max-width: 100%; height: 80%;
        border: round $primary; background: $surface; padding: 0 1;
    }
    FindChatScreen Input { background: $panel; color: $foreground; }
    FindChatScreen OptionList { height: 1fr; padding: 0; background: $surface; }
    FindChatScreen .hint { color: $secondary; }
    """

    HELP_HERE: ClassVar[HelpGroup] = dialogue_help(
        "Now: the chats that are stored",
        ("letters", "Look for this in all names and messages"),
        ("↑ ↓", "Point at another one"),
        ("Enter", "Open it; a click does too"),
        ("Esc", "Open nothing"),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="find.back", tooltip="Open nothing"),
        Binding("down", "move(1)", "Down", show=False, id="find.down"),
        Binding("up", "move(-1)", "Up", show=False, id="find.up"),
    ]

    def __init__(self, keeper: Keeper, query: str) -> None:
        super().__init__()
        self._keeper = keeper
        self._wanted = query
        self._chats: list[ChatId] = []

    def compose(self) -> ComposeResult:
        with Vertical() as panel:
            panel.border_title = Content("Chats")
            yield Input(
                self._wanted,
                placeholder="Type to search names and messages",
                select_on_focus=False,
                compact=True,
            )
            yield OptionList(compact=True)
            yield Static("", markup=False, classes="hint")

    async def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._pause = self.set_timer(PAUSE, self._look)
        await self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._pause.stop()
        self._pause = self.set_timer(PAUSE, self._look)

    async def _look(self) -> None:
        wanted = self._wanted.strip()
        if wanted:
            hits = await self._keeper.search(wanted)
            self._show([(hit.chat.id, hit_line(hit)) for hit in hits], hits_words(hits))
        else:
            chats = await self._keeper.chats(NEWEST)
            self._show([(chat.id, chat_line(chat)) for chat in chats], counted(len(chats), "chat"))

    def _show(self, rows: list[tuple[ChatId, Content]], words: str) -> None:
        self._chats = [chat for chat, _ in rows]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(line) for _, line in rows])
        options.highlighted = 0 if rows else None
        self.query_one(".hint", Static).update(f"{words} · Enter opens, Esc goes back")

    def action_move(self, places: int) -> None:
        options = self.query_one(OptionList)
        if places > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def on_input_submitted(self) -> None:
        place = self.query_one(OptionList).highlighted
        if place is not None and place < len(self._chats):
            self.dismiss(self._chats[place])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._chats[event.option_index])

    def action_leave(self) -> None:
        self.dismiss(None)


def chat_line(chat: ChatSummary) -> Content:
    """Day, size and title."""
    size = counted(chat.messages, "message")
    return Content(f"{_day(chat)}  {size:>12}  {one_line(chat.title) or 'untitled'}")


def _day(chat: ChatSummary) -> str:
    return datetime.fromtimestamp(chat.updated).strftime("%Y-%m-%d %H:%M")


def hits_words(hits: Sequence[Hit]) -> str:
    """`1 name, 2 messages`."""
    names = sum(hit.message is None for hit in hits)
    numbers = ((names, "name"), (len(hits) - names, "message"))
    return ", ".join(counted(number, noun) for number, noun in numbers if number) or "nothing found"


def hit_line(hit: Hit) -> Content:
    """The title, and below it the text, or of a chat found by its name when it was and how long it is.

    What was found is bold and underlined: it is not told by colour alone.
    """
    piece = hit.excerpt
    found = Content(one_line(piece.hit)).stylize("bold underline")
    if hit.message is None:
        size = f"{_day(hit.chat)}  {counted(hit.chat.messages, 'message')}"
        parts = (Content(_shown(piece.before)), found, Content(_shown(piece.after)))
        return Content("").join(parts).stylize("bold") + Content(f"\n    {size}")
    before, after = (" ".join(part.split("\n")) for part in (piece.before, piece.after))
    text = Content(f"    {_shown(before)}") + found + Content(_shown(after))
    return Content(one_line(hit.chat.title) or "untitled").stylize("bold") + Content("\n") + text


def _shown(text: str) -> str:
    from fleetchat.chat.sanitise import sanitise

    return " ".join(sanitise(text).split("\n"))
