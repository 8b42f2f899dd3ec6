"""Lines of styled text, and tables of them in exactly the width that there is (pure).

A span says how it looks by a name that a widget turns into a style, and which figure it shows, so that the
figure can be pointed at and explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len

from fleetchat.app.cells import fitted

TAB_LOOKS = 8  # colours of tabs; the ninth tab has that of the first


class Span(NamedTuple):
    """`figure` names an entry of `figures.FIGURES`; `subject` says of what it is: `stage 1`, `chat 2`."""

    text: str
    look: str = "plain"
    figure: str = ""
    subject: str = ""


Line = tuple[Span, ...]
GAP = Span(" ")  # between columns


def tab_look(place: int | None) -> str:
    """The look of a tab's colour; None is a chat whose tab is gone."""
    return "dim" if place is None else f"tab-{(place - 1) % TAB_LOOKS + 1}"


def tab_sign(place: int | None) -> str:
    """One character for a tab: 1 to 9, then letters; `?` for a chat whose tab is gone."""
    if place is None:
        return "?"
    return "123456789abcdefghijklmnopqrstuvwxyz"[min(place, 35) - 1]


def text_of(line: Line) -> str:
    """What a line says, without looks."""
    return "".join(span.text for span in line)


def width_of(line: Iterable[Span]) -> int:
    return sum(cell_len(span.text) for span in line)


def cut(line: Line, width: int) -> Line:
    """The line in at most `width` cells; what is cut ends with `…`."""
    if width_of(line) <= width:
        return line
    spans, room = [], width
    for span in line:
        length = cell_len(span.text)
        if length >= room:
            spans.append(span._replace(text=fitted(span.text + " …", room)))
            break
        spans.append(span)
        room -= length
    return tuple(spans)


def heading(title: str, width: int, *, note: str = "") -> Line:
    """`── Stages ──────── note ──`."""
    left = f"── {title} "
    right = f" {note} ──" if note else ""
    fill = width - cell_len(left) - cell_len(right)
    if fill < 1:
        return cut((Span(f"── {title} {note}".rstrip(), "title"),), width)
    return Span(left, "title"), Span("─" * fill + right, "dim")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `keep` says which column goes first when room is short: the lowest."""

    title: str
    cells: Sequence[Span]
    width: int
    keep: int
    numeric: bool = True


def table(columns: Sequence[Column], width: int) -> list[Line]:
    """A line of titles and one a row. What does not fit into `width` is left out, least wanted first."""
    shown = [(column, max(column.width, cell_len(column.title))) for column in columns]
    while len(shown) > 1 and sum(room + 1 for _, room in shown) - 1 > width:
        del shown[min(range(len(shown)), key=lambda place: shown[place][0].keep)]
    places = [(room, column.numeric) for column, room in shown]
    titles = [Span(column.title, "dim") for column, _ in shown]
    rows = zip(*(column.cells for column, _ in shown), strict=True)
    return [_row(places, titles, width), *(_row(places, row, width) for row in rows)]


def _row(places: Sequence[tuple[int, bool]], cells: Sequence[Span], width: int) -> Line:
    """Cells in columns of so many cells, at their right end or not."""
    spans: list[Span] = []
    for (room, right), (text, *rest) in zip(places, cells, strict=True):
        if spans:
            spans.append(GAP)
        spans.append(Span(fitted(text, room, right=right), *rest))
    return cut(tuple(spans), width)


def flowing(parts: Sequence[Line], width: int, *, gap: str = "   ") -> list[Line]:
    """Parts one after the other, as many a line as fit; none is broken."""
    lines: list[list[Span]] = []
    for part in parts:
        if lines and width_of(lines[-1]) + len(gap) + width_of(part) <= width:
            lines[-1] += [Span(gap), *part]
        else:
            lines.append(list(part))
    return [cut(tuple(line), width) for line in lines]
