"""The prompt: Enter sends, Ctrl+J makes a newline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from fleetchat.app.commands import Command
from fleetchat.app.prompt_history import HistoryWalk, PromptHistory
from fleetchat.app.widgets.lasting_styles import LastingStyles
from fleetchat.app.widgets.suggestions import Suggestions
from fleetchat.chat.sanitise import sanitise

# Ctrl+J reaches the program in every terminal; the other two only where the terminal tells them apart.
NEWLINE_KEYS = frozenset({"ctrl+j", "shift+enter", "alt+enter"})


class Prompt(TextArea, LastingStyles):
    """Where a message is written. It grows with its text up to a third of a small screen."""

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 10;
        border: round $secondary;
        background: $background;
        padding: 0 1;
        border-title-color: $foreground;
        border-subtitle-color: $foreground;
    }
    Prompt:focus { border: round $primary; }
    Prompt .text-area--placeholder { color: $secondary; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send", id="prompt.send", tooltip="Send the message"),
        Binding("ctrl+j", "newline", "Newline", id="prompt.newline", tooltip="Begin a new line"),
        Binding("pageup", "screen.scroll('page_up')", "Scroll up", show=False, id="transcript.page_up"),
        Binding(
            "pagedown", "screen.scroll('page_down')", "Scroll down", show=False, id="transcript.page_down"
        ),
        Binding("ctrl+up", "screen.scroll('up')", "Line up", show=False, id="transcript.line_up"),
        Binding("ctrl+down", "screen.scroll('down')", "Line down", show=False, id="transcript.line_down"),
        Binding(
            "ctrl+end", "screen.command('view.follow')", "Newest text", show=False, id="transcript.follow"
        ),
    ]

    def render_line(self, y: int) -> Strip:
        """Textual wraps the placeholder at the width, which may be none while the screen is resized."""
        if self.content_size.width < 1:
            return Strip.blank(max(0, self.size.width))
        return super().render_line(y)

    @dataclass
    class Submitted(Message):
        """Enter was pressed."""

        prompt: Prompt
        text: str

    class FollowWanted(Message):
        """End was pressed at the end of the text."""

    def __init__(self, history: PromptHistory, suggestions: Suggestions) -> None:
        super().__init__(
            highlight_cursor_line=False,
            placeholder=Content("Type a message, Enter sends; / lists commands"),
        )
        self.cursor_blink = False  # twice a second, all that stands beside the prompt would be drawn with it
        self.disable_messages(TextArea.SelectionChanged)  # every key brings one, and nobody wants it
        self._said = ("", "")
        self._walk = HistoryWalk(history)
        self._suggestions = suggestions

    def say(self, title: str, subtitle: str = "") -> None:
        """Put words on the frame: what is going on, what can be done."""
        if (title, subtitle) != self._said:
            self._said = (title, subtitle)
            self.border_title = Content(title)  # a str would be read as markup
            self.border_subtitle = Content(subtitle)

    def clear_text(self) -> None:
        self.load_text("")
        self._walk.restart()

    def set_text(self, text: str) -> None:
        """Put a text here in one undo step, the cursor at its end."""
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)

    def action_cursor_up(self, select: bool = False) -> None:
        """In the first line: the prompt before."""
        if self._suggestions.step(-1):
            return
        if not select and self.cursor_at_first_line:
            if (text := self._walk.older(self.text)) is not None:
                self.set_text(text)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """In the last line: the prompt after."""
        if self._suggestions.step(1):
            return
        if not select and self.cursor_at_last_line:
            if (text := self._walk.newer()) is not None:
                self.set_text(text)
        else:
            super().action_cursor_down(select)

    def drop_selection(self) -> None:
        self.selection = Selection.cursor(self.cursor_location)

    def action_submit(self) -> None:
        self.post_message(self.Submitted(self, self.text))

    def action_newline(self) -> None:
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_cursor_line_end(self, select: bool = False) -> None:
        """End of the line; from the end of the text it goes on to the newest text of the transcript."""
        if not select and self.cursor_location == self.document.end:
            self.post_message(self.FollowWanted())
        super().action_cursor_line_end(select)

    def complete(self, command: Command) -> None:
        """Write a command out; what it needs can be typed behind it."""
        self.set_text(f"/{command.slash} " if command.argument else f"/{command.slash}")

    async def _on_key(self, event: events.Key) -> None:
        """Textual runs this before TextArea's own handler, which takes Enter for a newline."""
        if event.key == "enter":
            self.action_submit()
        elif event.key in NEWLINE_KEYS:
            self.action_newline()
        elif event.key == "tab" and (command := self._suggestions.pointed_at()) is not None:
            self.complete(command)
        else:
            return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        """Pasted text enters in one step, without control characters."""
        event.stop()
        event.prevent_default()
        self.replace(sanitise(event.text), *self.selection, maintain_selection_offset=False)
