"""The commands that a slash and some letters may become, above the prompt."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from fleetchat.app.commands import Command, completions


class Suggestions(OptionList, can_focus=False):
    """Shown while there is something to complete. A click takes a command."""

    DEFAULT_CSS = """
    Suggestions {
        display: none; height: auto; max-height: 9; margin: 0 1; padding: 0 1;
        border: none; background: $panel; color: $foreground;
    }
    Suggestions.-shown { display: block; }
    """

    @dataclass
    class Taken(Message):
        """A command was clicked."""

        command: Command

    def __init__(self) -> None:
        super().__init__()
        self._commands: list[Command] = []
        self._typed = ""

    def offer(self, text: str) -> None:
        """The text of the prompt has changed."""
        found = completions(text)
        if found != self._commands:
            self._commands = found
            self.clear_options()
            self.add_options([Option(suggestion_line(command)) for command in found])
        if found and text != self._typed:
            self.highlighted = 0
        self._typed = text
        self.set_class(bool(found), "-shown")

    def step(self, places: int) -> bool:
        """Point at another one; False when nothing is offered."""
        if not self._commands:
            return False
        self.highlighted = ((self.highlighted or 0) + places) % len(self._commands)
        return True

    def pointed_at(self) -> Command | None:
        """What Tab takes."""
        return self._commands[self.highlighted or 0] if self._commands else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Taken(self._commands[event.option_index]))


def suggestion_line(command: Command) -> Content:
    name = f"/{command.slash} {command.argument}".rstrip()
    return Content(f"{name:<20} {command.help}")
