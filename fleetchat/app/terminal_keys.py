"""Keys as terminals send them, where Textual reads them as something else.

A terminal without Kitty's protocol sends Alt and a key as Escape and the key. Textual tells `alt+t` from
that, but gives the key the character `t` as well, so that a field which has the focus takes it for a
letter; it reads Alt with a digit as what macOS types with Option, and Alt+Enter as Enter, which sends.
"""

from __future__ import annotations

from typing import Any, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS  # no public way; textual is pinned exactly
from textual.keys import Keys

MODIFIERS = frozenset({"alt", "ctrl", "hyper", "meta", "super"})


def read_alt_as_alt() -> None:
    """Change Textual's table, which all applications of this process share."""
    table = cast(dict[str, Any], ANSI_SEQUENCES_KEYS)
    for digit in "0123456789":
        table.pop(f"\x1b{digit}", None)  # it is Alt and a digit then, as with letters
    table["\x1b\r"] = (Keys.ControlJ,)  # a newline, as with Ctrl+J


def without_letter(key: events.Key) -> None:
    """Alt+T is no t: what stands beside a modifier is not typed."""
    *held, last = key.key.split("+")
    if last and MODIFIERS.intersection(held):
        key.character = None
