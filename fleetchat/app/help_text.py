"""What F1 says (pure): first what can be done here and now, then every key and command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleetchat.app.chat_state import ChatState
from fleetchat.app.commands import BY_ID, COMMANDS, NUMBERED, Command
from fleetchat.app.words import Phase
from fleetchat.chat.messages import Role
from fleetchat.chat.tree import Node, Status

KeyNames = Callable[[Command], str]

BROKEN_OFF = (Status.STOPPED, Status.INTERRUPTED, Status.LENGTH)


@dataclass(frozen=True, slots=True)
class HelpRow:
    """`keys` as people write them; `slash` the command's name with its stroke, or nothing."""

    keys: str
    slash: str
    meaning: str


@dataclass(frozen=True, slots=True)
class HelpGroup:
    """Rows under a title."""

    title: str
    rows: tuple[HelpRow, ...]


def dialogue_help(title: str, *rows: tuple[str, str]) -> HelpGroup:
    """What can be done in a dialogue: keys and their meaning."""
    return HelpGroup(title, tuple(HelpRow(keys, "", meaning) for keys, meaning in rows))


EVERYWHERE = dialogue_help(
    "Everywhere", ("Ctrl+Q", "Leave fleetchat"), ("F1", "Help; in the chat: all keys and commands")
)
WRITING = dialogue_help(
    "Writing",
    ("Enter", "Send the message"),
    ("Ctrl+J", "New line (also Shift+Enter, Alt+Enter)"),
    ("↑ ↓", "What you typed before (first, last line)"),
    ("Tab", "Complete a command that begins with /"),
    ("PgUp PgDn", "Scroll; Ctrl+↑ and Ctrl+↓ by a line"),
    ("Ctrl+P", "All commands, by name"),
    ("Ctrl+C", "Copy what is selected; twice: leave"),
    ("Ctrl+Q", "Leave, always"),
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Where the user is in the chat."""

    phase: Phase
    state: ChatState
    typed: str = ""
    selected: Node | None = None
    following: bool = True


def chat_help(now: Situation, key_names: KeyNames) -> list[HelpGroup]:
    """For the chat: what can be done now, and everything else."""
    return [now_help(now, key_names), WRITING, *_command_groups(key_names)]


def now_help(now: Situation, key_names: KeyNames) -> HelpGroup:
    """What the next key may do, as things are."""

    def row(command_id: str, meaning: str) -> HelpRow:
        command = BY_ID[command_id]
        return HelpRow(key_names(command), f"/{command.slash}" if command.slash else "", meaning)

    title, rows = _main_matter(now, row)
    more = [*rows]
    if now.selected is not None and not now.typed.startswith("/"):
        title, more = "Now: a message is selected", [*_on_message(now, row), *more]
    if not now.following:
        more.append(HelpRow("End", "/end", "Go to the newest text; you scrolled up"))
    return HelpGroup(title, tuple(more))


Row = Callable[[str, str], HelpRow]


def _main_matter(now: Situation, row: Row) -> tuple[str, list[HelpRow]]:
    state = now.state
    if now.typed.startswith("/"):
        return "Now: a command is typed", [
            HelpRow("Tab", "", "Complete it; ↑ ↓ choose another one"),
            HelpRow("Enter", "", "Do it; a space before / sends it as text"),
        ]
    if state.queued:
        return "Now: your message waits", [row("chat.stop", "Take it back")]
    if state.writing is not None:
        return "Now: a reply is being written", [
            row("chat.stop", "Stop it and keep its text"),
            HelpRow("Enter", "", "Your next message waits for its end"),
            row("tab.new", "Ask something else meanwhile, in a new tab"),
        ]
    if now.phase is Phase.STARTING:
        meaning = "It is sent when the fleet is ready"
        return "Now: the fleet is starting", [HelpRow("Enter", "", meaning)]
    if now.phase is Phase.FAILED:
        return "Now: the fleet is not running", [HelpRow("Enter", "", "See why, and start it again")]
    if state.editing is not None:
        return "Now: you edit a message", [
            HelpRow("Enter", "", "Send it as a new branch; the old one stays"),
            row("chat.stop", "Leave it as it was"),
        ]
    return _between_turns(state, row)


def _between_turns(state: ChatState, row: Row) -> tuple[str, list[HelpRow]]:
    path = state.path
    if not path:
        return "Now: an empty chat", [
            HelpRow("Enter", "", "Send what you typed"),
            row("chat.find", "Open a chat of earlier days"),
            row("chat.system", "What the model is told first"),
        ]
    rows = [HelpRow("Enter", "", "Send what you typed")]
    status = path[-1].status
    if status is Status.FAILED:
        rows.append(row("message.regenerate", "Try the failed reply again"))
    elif status in BROKEN_OFF:
        rows.append(row("message.continue", "Go on with the reply that broke off"))
    if status is not Status.FAILED:
        rows.append(row("message.regenerate", "Draw the reply anew; the old one is kept"))
    return "Now: your turn", [*rows, row("message.up", "Select a message: to copy, edit, or branch")]


def _on_message(now: Situation, row: Row) -> Iterable[HelpRow]:
    assert now.selected is not None
    yield row("message.copy", "Copy it")
    if now.selected.role is Role.USER:
        yield row("message.edit", "Edit it, as a new branch")
    else:
        yield row("message.code", "Copy its last code block")
    yield row("message.regenerate", "Draw the reply anew; the old one is kept")
    if now.state.version_words(now.selected):
        yield row("message.version", "Show its next version")
    yield row("chat.stop", "Select nothing")


def _command_groups(key_names: KeyNames) -> Iterable[HelpGroup]:
    for group in dict.fromkeys(command.group for command in COMMANDS):
        members = [c for c in COMMANDS if c.group == group and c.id not in NUMBERED]
        rows = [HelpRow(key_names(c), f"/{c.slash}" if c.slash else "", c.help) for c in members]
        if group == "Tabs":
            rows.append(HelpRow("Alt+1 … Alt+9", "", "Chat by number"))
        yield HelpGroup(group, tuple(rows))
