"""Searching messages and names of chats (pure): what the store is asked, and what is shown of a hit."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

TRIGRAM = 3  # characters below which the trigram index finds nothing
BEFORE, AFTER = 30, 80  # characters of an excerpt before and after the hit


def matching(query: str) -> str:
    """A query as one quoted string of FTS5: nothing in it is an operator."""
    return '"' + query.replace('"', '""') + '"'


def like(query: str) -> str:
    r"""A query for LIKE … ESCAPE '\'."""
    for special in "\\%_":
        query = query.replace(special, f"\\{special}")
    return f"%{query}%"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of one line around the hit, which may be empty when the store saw one that we do not."""

    before: str
    hit: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.hit + self.after


def name_excerpt(name: str, query: str) -> Excerpt | None:
    """The whole name with the first place of `query` in it; None when it is not there.

    Upper and lower case are the same, and letters with and without their accents.
    """
    wanted, _ = _folded(" ".join(query.split()))
    folded, places = _folded(name)
    begin = folded.find(wanted)
    if not wanted or begin < 0:
        return None
    start, end = places[begin], places[begin + len(wanted) - 1] + 1
    while end < len(name) and unicodedata.combining(name[end]):
        end += 1
    return Excerpt(_line(name[:start]), _line(name[start:end]), _line(name[end:]))


def _folded(text: str) -> tuple[str, list[int]]:
    """A text without case and accents, and for each of its characters the place it comes from."""
    letters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for letter in unicodedata.normalize("NFKD", character.casefold()):
            if not unicodedata.combining(letter):
                letters.append(letter)
                places.append(place)
    return "".join(letters), places


def excerpt(text: str, query: str) -> Excerpt:
    """The first place of `query` in `text`, with some text around it, in one line."""
    place = _place(text, query)
    if place < 0:
        return Excerpt(_line(text[: BEFORE + AFTER]), "", "")
    end = place + len(query)
    start = max(0, place - BEFORE)
    before = ("…" if start else "") + _line(text[start:place])
    after = _line(text[end : end + AFTER]) + ("…" if end + AFTER < len(text) else "")
    return Excerpt(before, _line(text[place:end]), after)


def _place(text: str, query: str) -> int:
    """Where the query stands; upper and lower case are the same where that keeps the length."""
    lower = text.lower()
    return lower.find(query.lower()) if len(lower) == len(text) else text.find(query)


def _line(text: str) -> str:
    return " ".join(text.split("\n"))
