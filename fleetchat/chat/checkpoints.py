"""When the text of a reply under way is saved (pure).

Each second, and between the seconds whenever a fifth of it would be lost: the beginning of a reply is saved
piece by piece, and a long one costs no more than one save a second, for each save writes all of its text.
"""

from __future__ import annotations

CHECKPOINT = 1.0  # seconds: what is lost at most when the program is killed
SHARE = 4  # a save is due when the text has grown by one part in so many of what is saved


def grown_enough(characters: int, saved: int) -> bool:
    """Whether a text should be saved now, before the second is over."""
    return characters > saved + saved // SHARE
