"""Every command once: its name, words, keys and slash name. Palette, footer, help and keys come from here.

Keys keep to what every terminal can tell apart: Ctrl, function keys, and Alt with a letter. (Alt with an
arrow arrives as Escape and an arrow where the terminal does not speak Kitty's protocol, and Escape stops.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetchat.spelling import nearest


@dataclass(frozen=True, slots=True)
class Command:
    """`keys` are Textual's names, comma separated. `argument` says what may follow the slash name."""

    id: str
    group: str
    title: str
    help: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    footer: bool = False


def _tab_by_place(place: int) -> Command:
    return Command(f"tab.{place}", "Tabs", f"Chat {place}", f"Show chat {place}", keys=f"alt+{place}")


_MESSAGES = (
    Command(
        "chat.stop", "Messages", "Stop", "Stop the reply and keep its text", "escape", "stop", footer=True
    ),
    Command("message.regenerate", "Messages", "Regenerate", "Draw the reply anew", "f5,alt+r", "retry"),
    Command("message.continue", "Messages", "Continue", "Go on with a stopped reply", "alt+a", "continue"),
    Command("message.edit", "Messages", "Edit", "Edit your message, as a new branch", "alt+e", "edit"),
    Command("message.version", "Messages", "Other version", "Show the next branch", "alt+v", "version"),
    Command("message.up", "Messages", "Select up", "Select the message before", "alt+k"),
    Command("message.down", "Messages", "Select down", "Select the message after", "alt+j"),
    Command("message.copy", "Messages", "Copy message", "Copy the selected or last reply", "alt+c", "copy"),
    Command("message.code", "Messages", "Copy code", "Copy its last code block", "alt+o", "code", "NUMBER"),
    Command("message.thought", "Messages", "Thoughts", "Fold or unfold thoughts", "alt+i", "thoughts"),
)
_TABS = (
    Command("tab.new", "Tabs", "New chat", "Begin an empty chat in a new tab", "ctrl+n", "new", footer=True),
    Command("tab.close", "Tabs", "Close", "Close this tab; the chat is kept", "f8,alt+w", "close"),
    Command("tab.reopen", "Tabs", "Reopen", "Open the tab that was closed last", "alt+t", "reopen"),
    Command("tab.rename", "Tabs", "Rename", "Give this chat a name", "f2", "rename", "NAME"),
    Command("tab.next", "Tabs", "Next chat", "Show the next tab", "ctrl+pagedown,alt+n", "next"),
    Command("tab.previous", "Tabs", "Previous chat", "Show the tab before", "ctrl+pageup,alt+p", "previous"),
    Command("tab.right", "Tabs", "Move right", "Move this tab to the right", "alt+l", "right"),
    Command("tab.left", "Tabs", "Move left", "Move this tab to the left", "alt+h", "left"),
    Command("tab.show", "Tabs", "Chat by number", "Show the tab with a number", "alt+g", "tab", "NUMBER"),
    *(_tab_by_place(place) for place in range(1, 10)),
)
_CHATS = (
    Command("chat.find", "Chats", "Search", "Find and open stored chats", "f3", "find", "TEXT", footer=True),
    Command("chat.export", "Chats", "Export", "Write this chat to a .md or .json file", "", "export", "FILE"),
    Command("chat.delete", "Chats", "Delete", "Remove this chat for good", "", "delete"),
    Command("chat.system", "Chats", "System prompt", "What the model is told first", "", "system", "TEXT"),
    Command("chat.set", "Chats", "Settings", "Sampling and more for this chat", "", "set", "NAME VALUE"),
)
_FLEET = (
    Command("fleet.rebalance", "Fleet", "Rebalance", "Propose a new cut from live times", "", "rebalance"),
    Command("fleet.add", "Fleet", "Add a peer", "Let one more peer serve", "", "add", "HOST:PORT NAME"),
    Command("fleet.remove", "Fleet", "Remove a peer", "Let a peer go, chats go on", "", "remove", "PEER"),
)
_PROGRAM = (
    Command("view.follow", "Program", "Newest text", "Go to the newest text and stay", "end", "end"),
    Command("view.panel", "Program", "Fleet panel", "Beside the chat, whole screen, hidden", "f9", "panel"),
    Command("view.record", "Program", "Record", "Record the fleet panel, or end it", "", "record", "FILE"),
    Command("prompt.editor", "Program", "Editor", "Write in $VISUAL or $EDITOR", "ctrl+g", "editor"),
    Command("model.switch", "Program", "Model", "Serve another model that is built", "", "model", "NAME"),
    Command("app.theme", "Program", "Theme", "Choose the colours", "f4", "theme", "NAME"),
    Command("app.help", "Program", "Help", "Keys and commands", "f1", "help", footer=True),
    Command("app.quit", "Program", "Quit", "Leave fleetchat", "", "quit"),
)

NUMBERED = frozenset(f"tab.{place}" for place in range(1, 10))
COMMANDS: tuple[Command, ...] = (*_MESSAGES, *_TABS, *_CHATS, *_FLEET, *_PROGRAM)
BY_ID = {command.id: command for command in COMMANDS}
BY_SLASH = {command.slash: command for command in COMMANDS if command.slash}


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """What was typed: a command and what followed it; None with a complaint when there is no such one."""

    command: Command | None
    argument: str
    complaint: str = ""


def parse_slash(text: str, known: Mapping[str, Command] = BY_SLASH) -> SlashCommand | None:
    """`/name argument`; None for a text that is a message. A space before the slash makes it one.

    `known` are the commands that can be typed here.
    """
    if not text.startswith("/"):
        return None
    parts = text[1:].split(None, 1)
    name = parts[0] if parts else ""
    if text[1:2].isspace() or not name.replace("-", "").isalpha():
        return None
    argument = parts[1].strip() if len(parts) > 1 else ""
    command = known.get(name.lower())
    if command is None:
        complaint = f"There is no command /{name}{nearest(name, known)}. A space before / sends it as text"
        return SlashCommand(None, argument, complaint)
    return SlashCommand(command, argument)


def completions(text: str) -> list[Command]:
    """The commands that a slash and some letters may become."""
    if not text.startswith("/") or not (text[1:].isalpha() or text == "/"):
        return []
    typed = text[1:].lower()
    return [command for name, command in sorted(BY_SLASH.items()) if name.startswith(typed)]
