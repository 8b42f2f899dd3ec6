"""The stages: what they are, how they are, how long they take (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len

from fleetchat.app.cells import one_line
from fleetchat.app.panel import numbers
from fleetchat.app.panel.lines import Column, Line, Span, cut, flowing, heading, tab_look, table
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.telemetry import FleetSnapshot, History, Percentiles, StageSnapshot, StageState

TROUBLED = {StageState.STALLED, StageState.LOST, StageState.RECOVERING}
WELL = {StageState.READY, StageState.BUSY}
SPARK, WIDE_SPARK = 8, 12
TROUBLE_LINES = 2
WIDE = 110  # cells from which histories are longer


def stage_lines(view: PanelView, width: int, *, note: str = "") -> list[Line]:
    """Title, the table of what stages are, the table of their times, and the totals.

    `note` stands in the title; else what is served, and in which epoch of the chain.
    """
    snapshot = view.snapshot
    served = (one_line(snapshot.model), snapshot.precision, snapshot.kv, f"epoch {snapshot.epoch}")
    return [
        heading("Stages", width, note=note or " · ".join(part for part in served if part)),
        *table(_being(snapshot.stages, width), width),
        *table(_times(snapshot, width), width),
        *totals(view, width),
    ]


def trouble_lines(snapshot: FleetSnapshot, width: int) -> list[Line]:
    """What is wrong and what happens now; else one line for each stage in trouble."""
    sentences = [
        f"Stage {stage.index} at {one_line(stage.address)} is {stage.state.value}: {one_line(stage.detail)}"
        for stage in snapshot.stages
        if stage.detail and stage.state in TROUBLED
    ]
    if snapshot.trouble:
        sentences = [one_line(snapshot.trouble)]
    wrapped = (
        wrap(sentence, max(width, 20), max_lines=TROUBLE_LINES, placeholder=" …") for sentence in sentences
    )
    lines = [cut((Span(line, "bad"),), width) for lines in wrapped for line in lines]
    return [*lines, *_moving_lines(snapshot, width)]


def _moving_lines(snapshot: FleetSnapshot, width: int) -> list[Line]:
    """What is being done to serve with other peers, or another cut."""
    if not snapshot.moving:
        return []
    wrapped = wrap(
        f"Moving: {one_line(snapshot.moving)}", max(width, 20), max_lines=TROUBLE_LINES, placeholder=" …"
    )
    return [cut((Span(line, "warn"),), width) for line in wrapped]


def totals(view: PanelView, width: int) -> list[Line]:
    """Speeds, of all and of each tab, and what is counted for the whole fleet."""
    snapshot = view.snapshot
    speeds: list[Line] = [
        (Span(f"{numbers.speed(snapshot.tokens_per_s):>6} tokens/s", "bold", "speed", "all chats"),)
    ]
    for one in view.sessions:
        if one.generating:
            place = view.place(one.session)
            speed = f"{numbers.speed(one.tokens_per_s):>6}/s"
            speeds.append(
                (Span(f"chat {place}", tab_look(place)), Span(speed, "plain", "speed", f"chat {place}"))
            )
    counted: list[Line] = []
    zeros: list[Line] = []
    for name, figure, value in (
        ("waiting", "waiting", snapshot.waiting),
        ("recoveries", "recoveries", snapshot.recoveries),
        ("moves", "moves", snapshot.moves),
        ("evictions", "evictions", snapshot.evictions),
        ("shared starts", "forks", snapshot.forks),
    ):
        words = f"{name} {numbers.count(value)}"
        counted.append((Span(words, "plain" if value else "dim", figure, "fleet"),))
        if not value:
            zeros.append(counted[-1])
    least = flowing([*speeds, *(part for part in counted if part not in zeros)], width)
    # Zeros are not worth a line of their own, nor, on narrow screens, any room at all.
    whole = flowing([*speeds, *counted], width) if width >= WIDE else least
    return whole if len(whole) == len(least) else least


def _being(stages: Sequence[StageSnapshot], width: int) -> list[Column]:
    """What and how the stages are."""
    addresses = [one_line(stage.address) for stage in stages]
    longest = min(max(map(cell_len, addresses), default=0), 40 if width >= WIDE else 21)

    def column(
        title: str,
        figure: str,
        words: Callable[[StageSnapshot], str],
        width: int,
        keep: int,
        *,
        text: bool = False,
    ) -> Column:
        cells = [Span(words(stage), _look(figure, stage), figure, _name(stage)) for stage in stages]
        return Column(title, cells, width, keep, numeric=not text)

    return [
        Column("Stage", [Span(str(stage.index), "bold") for stage in stages], 5, 10),
        column("Address", "address", lambda stage: one_line(stage.address), longest, 2, text=True),
        column("Layers", "layers", lambda stage: f"{stage.first_layer}–{stage.last_layer}", 6, 1),
        column("Engine", "engine", _engine, 10, 0, text=True),
        column("State", "state", lambda stage: stage.state.value, 10, 9, text=True),
        column("Memory", "memory", lambda stage: numbers.size(stage.memory_resident), 6, 5),
        column("Live", "cells-live", lambda stage: numbers.count(stage.cells_live), 6, 7),
        column("Dead", "cells-dead", lambda stage: numbers.count(stage.cells_dead), 6, 6),
        column("Free", "cells-free", lambda stage: numbers.count(stage.cells_free), 6, 4),
        column("Heat", "heat", heat_words, 8, 8, text=True),
    ]


def heat_words(stage: StageSnapshot) -> str:
    """`1.0x`, `HOT 2.0x`, and a dash where too little was computed."""
    if stage.heat is None:
        return numbers.NOTHING
    factor = f"{min(stage.heat, 99.9):.1f}x"
    return f"HOT {factor}" if stage.throttling else factor


def _engine(stage: StageSnapshot) -> str:
    return one_line(f"{stage.engine} {stage.device}") or numbers.NOTHING


def _name(stage: StageSnapshot) -> str:
    return f"stage {stage.index}"


def _look(figure: str, stage: StageSnapshot) -> str:
    if figure == "state":
        return "good" if stage.state in WELL else "bad" if stage.state in TROUBLED else "warn"
    if figure == "heat" and stage.throttling:
        return "bad"
    if figure == "cells-dead" and stage.cells_dead > stage.cells_live:
        return "warn"
    return "plain"


@dataclass(frozen=True, slots=True)
class _Measured:
    """Times of one row: a stage's, or those of the way back."""

    subject: str
    percentiles: Percentiles
    history: History

    def span(self, words: str, figure: str) -> Span:
        return Span(words, "plain", figure, self.subject)


def _times(snapshot: FleetSnapshot, width: int) -> list[Column]:
    """Compute, queue and network of each stage, and the way back as a row of its own."""
    stages, spark = snapshot.stages, WIDE_SPARK if width >= WIDE else SPARK
    compute = [_Measured(_name(one), one.compute_ms, one.compute_history) for one in stages]
    queue = [_Measured(_name(one), one.queue_ms, one.queue_history) for one in stages]
    network = [_Measured(_name(one), one.network_ms, one.network_history) for one in stages]
    back = _Measured("the way back", snapshot.return_network_ms, snapshot.return_history)
    signs = [*(str(stage.index) for stage in stages), "back"]
    return [
        Column("ms", [Span(sign, "bold") for sign in signs], 5, 99),
        *_time_columns("Compute", "compute", [*compute, None], 2, spark),
        *_time_columns("Queue", "queue", [*queue, None], 0, spark),
        *_time_columns("Network", "network", [*network, back], 1, spark),
    ]


def _time_columns(
    title: str, figure: str, rows: Sequence[_Measured | None], keep: int, spark: int
) -> list[Column]:
    """Median, p95 and the last minute; medians stay longest, histories go first."""

    def cells(words: Callable[[_Measured], str]) -> list[Span]:
        return [row.span(words(row), figure) if row else Span("") for row in rows]

    return [
        Column(title, cells(lambda row: _time(row.percentiles, row.percentiles.p50)), 7, 30 + keep),
        Column("p95", cells(lambda row: _time(row.percentiles, row.percentiles.p95)), 6, 20 + keep),
        Column("1 min", cells(lambda row: numbers.history_bars(row.history, spark)), spark, 10 + keep),
    ]


def _time(percentiles: Percentiles, value: float) -> str:
    return numbers.milliseconds(value if percentiles.count else None)
