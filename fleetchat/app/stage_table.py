"""The stage table as lines of text (pure): aligned columns, no width that jitters with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from fleetchat.chat.sanitise import sanitise
from fleetchat.fleet.telemetry import (
    FleetSnapshot,
    Percentiles,
    SpeculationSnapshot,
    StageSnapshot,
    StageState,
)

ROOMY = 104  # cells from which titles carry their units and gaps are three cells wide


@dataclass(frozen=True, slots=True)
class Column:
    """`keep` says which column goes first when room is short: the lowest."""

    title: str
    cells: tuple[str, ...]
    width: int
    keep: int
    numeric: bool = False

    def lines(self) -> list[str]:
        return [fitted(text, self.width, right=self.numeric) for text in (self.title, *self.cells)]


def one_line(text: str) -> str:
    """Text of a peer, fit to stand in a line: no control characters, no line breaks."""
    return " ".join(sanitise(text).split())


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells, cut with `…`."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(set_cell_size(text, max(0, width - 1)).rstrip() + "…", width)
    padding = " " * (width - length)
    return padding + text if right else text + padding


def milliseconds(percentiles: Percentiles) -> str:
    """The median, or a dash where nothing was measured."""
    if percentiles.count == 0:
        return "–"
    return f"{percentiles.p50:.1f}" if percentiles.p50 < 10_000 else f"{percentiles.p50:.0f}"


def columns_of(stages: tuple[StageSnapshot, ...], *, roomy: bool) -> list[Column]:
    unit = " ms" if roomy else ""
    addresses = tuple(one_line(stage.address) for stage in stages)
    longest = max(map(cell_len, addresses), default=0)

    def column(title: str, texts: tuple[str, ...], width: int, keep: int, *, numeric: bool = True) -> Column:
        return Column(title, texts, max(width, len(title)), keep, numeric)

    return [
        column("Stage", tuple(str(stage.index) for stage in stages), 5, 10),
        column("Address", addresses, min(max(longest, 15), 40 if roomy else 21), 3, numeric=False),
        column("Layers", tuple(f"{s.first_layer}–{s.last_layer}" for s in stages), 6, 2),
        column("State", tuple(stage.state.value for stage in stages), 10, 9, numeric=False),
        column(f"Compute{unit}", tuple(milliseconds(s.compute_ms) for s in stages), 7, 8),
        column(f"Queue{unit}", tuple(milliseconds(s.queue_ms) for s in stages), 7, 4),
        column(f"Network{unit}", tuple(milliseconds(s.network_ms) for s in stages), 7, 6),
        column("Cells live" if roomy else "Cells", tuple(f"{s.cells_live:,}" for s in stages), 6, 5),
        column("Cells dead" if roomy else "Dead", tuple(f"{s.cells_dead:,}" for s in stages), 6, 1),
    ]


def total_width(columns: list[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * max(0, len(columns) - 1)


def chosen_columns(stages: tuple[StageSnapshot, ...], width: int) -> tuple[list[Column], int]:
    """The columns that fit into `width` cells, and the gap between them."""
    roomy = width >= ROOMY
    gap = 3 if roomy else 1
    columns = columns_of(stages, roomy=roomy)
    while len(columns) > 1 and total_width(columns, gap) > width:
        columns.remove(min(columns, key=lambda column: column.keep))
    return columns, gap


def faults(snapshot: FleetSnapshot, width: int) -> list[str]:
    """What is wrong and what happens now, in words; else one line for each stage that is in trouble."""
    if snapshot.trouble:
        return wrap(one_line(snapshot.trouble), max(width, 20), max_lines=TROUBLE_LINES, placeholder=" …")
    return [
        f"Stage {stage.index} at {one_line(stage.address)} is {stage.state.value}: {one_line(stage.detail)}"
        for stage in snapshot.stages
        if stage.detail and stage.state in (StageState.STALLED, StageState.LOST)
    ]


def totals(snapshot: FleetSnapshot) -> str:
    """Speed of the whole fleet, and the leg back from the last stage."""
    speed = f"{snapshot.tokens_per_s:6.1f} tokens/s"
    leg = f"return leg {milliseconds(snapshot.return_network_ms):>5} ms"
    return f"{speed}   {leg}"


TROUBLE_LINES = 2
BARS = "▁▂▃▄▅▆▇█"


def sparkline(shares: tuple[float, ...], length: int) -> str:
    """Shares from 0 to 1 as bars, the newest at the right, padded to `length`."""
    bars = "".join(BARS[round(share * (len(BARS) - 1))] for share in shares[-length:])
    return bars.rjust(length)


def speculation_line(counted: SpeculationSnapshot | None) -> str:
    """What drafting does, for all chats together; empty while nothing was drafted."""
    if counted is None or counted.acceptance is None:
        return ""
    return (
        f"drafts {counted.acceptance:4.0%} {sparkline(counted.recent, 12)}  depth {counted.depth:2d}"
        f"  {counted.rollbacks:,} rollbacks  {counted.cells_masked:,} masked"
        f"  {counted.compactions:,} compactions"
    )


def summary_line(snapshot: FleetSnapshot, width: int) -> str:
    """The whole fleet in one line, for screens without room for a table."""
    stages = snapshot.stages
    well = sum(stage.state in (StageState.READY, StageState.BUSY) for stage in stages)
    return fitted(f"{well} of {len(stages)} stages ready {totals(snapshot)}", width).rstrip()


def table_lines(snapshot: FleetSnapshot, width: int, height: int) -> list[str]:
    """The table in at most `width` cells and `height` lines; one line when it does not fit."""
    trouble = faults(snapshot, width)
    if len(snapshot.stages) + 2 > height or width < 40:
        return [fitted(line, width).rstrip() for line in (*trouble[:1], summary_line(snapshot, width))]
    columns, gap = chosen_columns(snapshot.stages, width)
    rows = zip(*(column.lines() for column in columns), strict=True)
    lines = [(" " * gap).join(row).rstrip() for row in rows]
    lines += [fitted(line, width).rstrip() for line in trouble] + [fitted(totals(snapshot), width)]
    drafts = speculation_line(snapshot.speculation)
    return [*lines, fitted(drafts, width)] if drafts and len(lines) < height else lines
