"""Pointing at figures: by cursor keys and by mouse (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from fleetchat.app.panel.figures import FIGURES
from fleetchat.app.panel.lines import Line


@dataclass(frozen=True, slots=True)
class Spot:
    """A figure on the panel, where it stands first."""

    figure: str
    subject: str
    line: int
    start: int
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """What stays when the panel is drawn anew."""
        return self.figure, self.subject


@dataclass(frozen=True, slots=True)
class Explanation:
    """What F1 says of a figure."""

    title: str
    value: str
    meaning: str
    when_bad: str


def spots_of(lines: Sequence[Line]) -> list[Spot]:
    """Every figure once, in reading order."""
    found: dict[tuple[str, str], Spot] = {}
    for number, line in enumerate(lines):
        start = 0
        for span in line:
            if span.figure:
                spot = Spot(span.figure, span.subject, number, start, span.text.strip())
                found.setdefault(spot.key, spot)
            start += cell_len(span.text)
    return list(found.values())


def spot_at(lines: Sequence[Line], line: int, cell: int) -> Spot | None:
    """The figure under the mouse."""
    if not 0 <= line < len(lines):
        return None
    start = 0
    for span in lines[line]:
        length = cell_len(span.text)
        if start <= cell < start + length:
            return Spot(span.figure, span.subject, line, start, span.text.strip()) if span.figure else None
        start += length
    return None


def moved(
    spots: Sequence[Spot], key: tuple[str, str] | None, *, right: int = 0, down: int = 0
) -> tuple[str, str] | None:
    """The figure beside, or the nearest one on the next line that has any; the first where none was shown."""
    if not spots:
        return None
    place = next((place for place, spot in enumerate(spots) if spot.key == key), None)
    if place is None:
        return spots[0].key
    if right:
        return spots[(place + right) % len(spots)].key
    here = spots[place]
    beyond = [spot for spot in spots if (spot.line - here.line) * down > 0]
    if not beyond:
        return here.key
    line = min((spot.line for spot in beyond), key=lambda number: abs(number - here.line))
    on_it = [spot for spot in beyond if spot.line == line]
    return min(on_it, key=lambda spot: abs(spot.start - here.start)).key


def explanation(spot: Spot) -> Explanation:
    """One sentence, and what to do when the figure is bad."""
    figure = FIGURES[spot.figure]
    of = f" · {spot.subject}" if spot.subject and spot.figure != "event" else ""
    value = spot.subject if spot.figure == "event" else spot.text
    return Explanation(f"{figure.title}{of}", value, figure.meaning, figure.when_bad)
