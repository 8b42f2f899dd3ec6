"""Which keys do what, after the user's wishes (pure): clashes are told, and Ctrl+Q always leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetchat.app.commands import BY_ID, BY_SLASH, COMMANDS
from fleetchat.spelling import nearest

# What writing needs, and what the program keeps: no command can take them.
RESERVED = frozenset(
    {
        *("ctrl+q", "ctrl+c", "ctrl+p", "ctrl+j", "enter", "shift+enter", "alt+enter", "tab", "shift+tab"),
        *("backspace", "delete", "up", "down", "left", "right", "home", "pageup", "pagedown"),
        *("ctrl+left", "ctrl+right", "ctrl+up", "ctrl+down", "ctrl+end", "ctrl+home"),
        *("shift+up", "shift+down", "shift+left", "shift+right", "shift+home", "shift+end"),
        *("ctrl+a", "ctrl+e", "ctrl+u", "ctrl+k", "ctrl+w", "ctrl+d", "ctrl+x", "ctrl+v", "ctrl+z"),
        *("ctrl+y", "f6", "f7", "alt+f", "alt+b"),
    }
)
NAMED = frozenset({"escape", "end", "insert", "space", "pageup", "pagedown", "home"})
KEY = re.compile(r"(?:(?:ctrl|alt|shift)\+)*(?:[a-z0-9]|f(?:[1-9]|1[0-9]|2[0-4])|[a-z]+)")
SHOWN = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "end": "End",
    "home": "Home",
    "space": "Space",
    "insert": "Ins",
}


@dataclass(frozen=True, slots=True)
class KeyMap:
    """`keys` has the keys of every command that has any, as Textual writes them."""

    keys: Mapping[str, str]
    problems: tuple[str, ...] = ()

    def shown(self, command_id: str) -> str:
        """`F5, Alt+R`."""
        return ", ".join(map(key_name, filter(None, self.keys.get(command_id, "").split(","))))


def key_name(key: str) -> str:
    """A key as people write it."""
    return "+".join(SHOWN.get(part, part.capitalize()) for part in key.split("+"))


def footer_key(shown: str) -> str:
    """A key as the footers write it, from what Textual would: as everywhere, but for `^` that saves room."""
    return shown.upper() if shown.startswith("^") else key_name(shown)


def resolve(wishes: Mapping[str, str]) -> KeyMap:
    """The default keys with the user's; what cannot be had is told, and stays as it was.

    A command is named by its id or by its slash name: `tab.new` or `new`.
    A key that a wish takes is taken from the command that has it by default.
    """
    keys = {command.id: command.keys for command in COMMANDS if command.keys}
    problems: list[str] = []
    taken: dict[str, str] = {}
    for name, wish in wishes.items():
        command_id = BY_SLASH[name].id if name in BY_SLASH else name
        complaint = _complaint(command_id, wish, taken)
        if complaint:
            problems.append(f"key map: {complaint}")
            continue
        keys[command_id] = _normal(wish)
        taken |= dict.fromkeys(_split(wish), command_id)
    for command_id, own in keys.items():
        if command_id not in taken.values():
            keys[command_id] = ",".join(key for key in own.split(",") if key not in taken)
    return KeyMap({command_id: own for command_id, own in keys.items() if own}, tuple(problems))


def _complaint(command_id: str, wish: str, taken: Mapping[str, str]) -> str:
    if command_id not in BY_ID:
        known = [*BY_SLASH, *BY_ID]
        return f"there is no command {command_id!r}{nearest(command_id, known)}; F1 lists all"
    for key in _split(wish):
        if key in RESERVED:
            return f"{key_name(key)} cannot be given to {command_id}: it is needed for writing or leaving"
        last = key.split("+")[-1]
        if not KEY.fullmatch(key) or (last.isalpha() and len(last) > 1 and last not in NAMED):
            return f"{key!r} for {command_id} is no key; write it as ctrl+t, alt+x or f5"
        if "+" not in key and len(key) == 1:
            return f"{key!r} cannot be given to {command_id}: it is a letter that is typed"
        if key in taken:
            return f"{key_name(key)} is wanted by {taken[key]} and by {command_id}; the first has it"
    return ""


def _split(wish: str) -> list[str]:
    return [key for key in _normal(wish).split(",") if key]


def _normal(wish: str) -> str:
    return ",".join(key.strip().lower() for key in wish.split(","))
