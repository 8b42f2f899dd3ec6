"""The tabs as one line of text (pure): marks, titles, speeds, and which of them fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len

from fleetchat.app.cells import fitted, one_line
from fleetchat.app.events import ChatNumber

TITLE_WIDTH = 24  # cells of a title at most
SHORTEST = 8  # cells below which titles are not cut; tabs are left out instead
MORE_LEFT, MORE_RIGHT = "‹ ", " ›"


class Mark(Enum):
    """What a tab has to say. The value is its sign: no state is told by colour alone."""

    NONE = ""
    WRITING = "~"
    WAITING = "…"
    UNREAD = "●"
    FAILED = "!"


@dataclass(frozen=True, slots=True)
class TabLabel:
    number: ChatNumber
    title: str
    mark: Mark = Mark.NONE
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One tab in the line. `start` is its first cell, `width` its cells."""

    number: ChatNumber
    text: str
    start: int
    width: int
    active: bool


def label_text(place: int, label: TabLabel, title_width: int) -> str:
    """` 2 ~ Title 21.4/s `."""
    title = one_line(label.title) or "untitled"
    if cell_len(title) > title_width:
        title = fitted(title, title_width).rstrip()
    speed = f"{label.tokens_per_s:.1f}/s" if label.mark is Mark.WRITING and label.tokens_per_s > 0 else ""
    parts = (str(place), label.mark.value, title, speed)
    return f" {' '.join(part for part in parts if part)} "


def strip(labels: list[TabLabel], active: ChatNumber, width: int) -> tuple[list[Piece], bool, bool]:
    """The tabs that fit around the active one, and whether some were left out on either side."""
    for title_width in (TITLE_WIDTH, 16, 12, SHORTEST):
        texts = [label_text(place, label, title_width) for place, label in enumerate(labels, start=1)]
        if sum(map(cell_len, texts)) <= width:
            return _placed(labels, texts, range(len(labels)), active, 0), False, False
    place = next(index for index, label in enumerate(labels) if label.number == active)
    shown = _around(place, [cell_len(text) for text in texts], width - len(MORE_LEFT) - len(MORE_RIGHT))
    pieces = _placed(labels, texts, shown, active, len(MORE_LEFT))
    return pieces, shown.start > 0, shown.stop < len(labels)


def _around(place: int, widths: list[int], room: int) -> range:
    """As many tabs as fit into `room`, the one at `place` among them, its neighbours first."""
    first, after, taken = place, place + 1, widths[place]
    while True:
        if after < len(widths) and taken + widths[after] <= room:
            taken += widths[after]
            after += 1
        elif first > 0 and taken + widths[first - 1] <= room:
            first -= 1
            taken += widths[first]
        else:
            return range(first, after)


def _placed(
    labels: list[TabLabel], texts: list[str], shown: range, active: ChatNumber, start: int
) -> list[Piece]:
    pieces = []
    for index in shown:
        width = cell_len(texts[index])
        pieces.append(Piece(labels[index].number, texts[index], start, width, labels[index].number == active))
        start += width
    return pieces
