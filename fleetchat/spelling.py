"""The end of a message about a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 40  # characters of a name that are repeated
FEW = 4  # names that are told in full


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; the nearest is 'temperature'`, or nothing when no known name is like it.

    Dashes in front are not compared: two options are not alike because both have them.
    """
    bare = {name.lstrip("-"): name for name in known}
    word = word.lstrip("-")
    matches = [name for name in bare if _is_swapped(word, name)]
    matches = matches or get_close_matches(word, list(bare), n=1, cutoff=cutoff)
    return f"; the nearest is {bare[matches[0]]!r}" if matches else ""


def shortened(word: str) -> str:
    """What was typed, as far as a line needs it."""
    return word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…"


def offered(word: str, known: Sequence[str], shown_by: str) -> str:
    """What could be meant: all names where they are few, else the nearest and what shows the others."""
    if len(known) <= FEW:
        return f"; there are {', '.join(known)}" if known else ""
    return f"{nearest(word, known)}; {shown_by} shows all {len(known)}"


def _is_swapped(word: str, name: str) -> bool:
    """Whether two letters changed places, for which `difflib` finds short words unlike."""
    return sorted(word) == sorted(name) and sum(a != b for a, b in zip(word, name, strict=True)) == 2
