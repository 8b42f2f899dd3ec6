"""The pipeline as lanes of characters: who held which stage when, and where the bubbles are (pure).

A cell of a lane stands for a stretch of time. It shows the block that covers most of it, or a bubble where
idle time covers more than any block. The kind of work is told by the character, whose it is by colour and
by the number of the tab at the beginning of every run that is longer than one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from fleetchat.app.panel import numbers
from fleetchat.app.panel.lines import Line, Span, cut, flowing, heading, tab_look, tab_sign
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.timeline import Block, Lane, TimelineSnapshot, WorkKind

SIGNS = {WorkKind.PREFILL: "█", WorkKind.VERIFY: "▓", WorkKind.DECODE: "▒", WorkKind.DRAFT: "░"}
BUBBLE = "·"
LABEL = 8  # cells before a lane
SHARE = 5  # cells after it
NARROW = 60  # cells below which the legend is left out


@dataclass(frozen=True, slots=True)
class Cell:
    """What a stretch of time shows. No kind: a bubble, or not known yet."""

    kind: WorkKind | None = None
    session: int = 0
    known: bool = True


UNKNOWN = Cell(known=False)
IDLE = Cell()


def lane_cells(
    blocks: Sequence[Block], start: float, end: float, complete_until: float, width: int
) -> list[Cell]:
    """`width` cells from `start` to `end`. Idle time after `complete_until` is not known to be idle."""
    length = (end - start) / width if width > 0 else 0.0
    if length <= 0:
        return []
    covered: dict[int, dict[tuple[WorkKind, int], float]] = {}  # of the places that have any
    for block in blocks:
        first = max(0, int((block.start - start) / length))
        last = min(width - 1, int((block.end - start) / length))
        for place in range(first, last + 1):
            from_, to = start + place * length, start + (place + 1) * length
            shared = min(block.end, to) - max(block.start, from_)
            if shared > 0:
                works = covered.setdefault(place, {})
                works[block.kind, block.session] = works.get((block.kind, block.session), 0.0) + shared
    return [
        _cell(covered.get(place), length, known=start + (place + 0.5) * length <= complete_until)
        for place in range(width)
    ]


def _cell(covered: dict[tuple[WorkKind, int], float] | None, length: float, *, known: bool) -> Cell:
    if covered:
        idle = length - sum(covered.values())
        (kind, session), most = max(covered.items(), key=lambda item: item[1])
        if most >= idle:
            return Cell(kind, session)
    return IDLE if known else UNKNOWN


def lane_spans(cells: Sequence[Cell], view: PanelView, subject: str) -> list[Span]:
    """Runs of like cells, each in its tab's colour, with the tab's number where there is room for it."""
    spans = []
    for cell, run in groupby(cells):
        length = len(list(run))
        if cell.kind is None:
            spans.append(Span((BUBBLE if cell.known else " ") * length, "dim", "lane", subject))
            continue
        place = view.place(cell.session)
        sign = SIGNS[cell.kind]
        text = sign if length == 1 else tab_sign(place) + sign * (length - 1)
        spans.append(Span(text, tab_look(place), "lane", subject))
    return spans


def timeline_lines(
    view: PanelView, shown: TimelineSnapshot | None, width: int, *, note: str = ""
) -> list[Line]:
    """Title, a lane a stage, the drafting lane, the axis and the legend. `note` says when it is not now."""
    room = max(1, width - LABEL - SHARE - 1)
    if shown is None:
        return [heading("Pipeline", width, note=note), cut((Span("nothing was computed yet", "dim"),), width)]
    seconds = shown.end - shown.start
    scale = f"{numbers.seconds(seconds)}, {numbers.seconds(seconds / room)} a cell"
    lines = [heading("Pipeline", width, note=f"{note} · {scale}" if note else scale)]
    for lane in shown.stages:
        lines.append(_lane_line(view, shown, lane, f"stage {lane.lane}", room, width, bubbles=True))
    lines.append(_lane_line(view, shown, shown.drafting, "drafting", room, width, bubbles=False))
    lines.append(axis(shown, room, width))
    return [*lines, *(flowing(legend(view), width) if width >= NARROW else [])]


def _lane_line(
    view: PanelView, shown: TimelineSnapshot, lane: Lane, name: str, room: int, width: int, *, bubbles: bool
) -> Line:
    cells = lane_cells(lane.blocks, shown.start, shown.end, shown.complete_until, room)
    if not bubbles:
        cells = [UNKNOWN if cell.kind is None else cell for cell in cells]  # not drafting is no loss
    share = numbers.share(lane.bubbles if bubbles and shown.complete_until > shown.start else None)
    spans = [Span(f"{name:<{LABEL}.{LABEL}}", "bold", "lane", name), *lane_spans(cells, view, name)]
    if bubbles:
        spans.append(Span(f" {share:>{SHARE - 1}}", "dim", "bubbles", name))
    return cut(tuple(spans), width)


def axis(shown: TimelineSnapshot, room: int, width: int) -> Line:
    """The beginning at the left, the end at the right, and a word for the shares."""
    left = f"-{numbers.seconds(shown.end - shown.start)}"
    right = "0"
    gap = max(1, room - len(left) - len(right))
    return cut((Span(" " * LABEL + left + " " * gap + right + " idle", "dim"),), width)


def legend(view: PanelView) -> list[Line]:
    """What the characters mean, and whose colours they are."""
    signs = "  ".join(f"{sign} {kind.value}" for kind, sign in SIGNS.items())
    parts: list[Line] = [(Span(f"{signs}  {BUBBLE} bubble", "dim"),)]
    for one in view.sessions:
        place = view.place(one.session)
        parts.append((Span(f"{tab_sign(place)} chat {place}", tab_look(place)),))
    return parts
