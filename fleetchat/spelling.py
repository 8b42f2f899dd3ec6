"""The end of a message about a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """`; the nearest is 'temperature'`, or nothing when no known name is like it."""
    matches = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; the nearest is {matches[0]!r}" if matches else ""
