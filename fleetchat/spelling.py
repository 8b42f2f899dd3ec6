"""The end of a message about a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; the nearest is 'temperature'`, or nothing when no known name is like it.

    Dashes in front are not compared: two options are not alike because both have them.
    """
    bare = {name.lstrip("-"): name for name in known}
    matches = get_close_matches(word.lstrip("-"), list(bare), n=1, cutoff=cutoff)
    return f"; the nearest is {bare[matches[0]]!r}" if matches else ""
