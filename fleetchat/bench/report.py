"""What a measurement says: a table for people, the JSON of `bench --json` for programs (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from fleetchat.bench.pairs import Row

HEADINGS = ("row", "value", "baseline", "unit", "ratio", "range", "pairs")
SMALLEST = 1e-6  # that is written without a power of ten


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of one measurement, and what one must know to read them.

    `setup` says what was compared with what and how, `formula` how a row comes from what was timed,
    `ceiling` what physics allows; `notes` are what else was found.
    """

    title: str
    setup: str
    formula: str
    ceiling: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def as_json(report: Report, machine: Mapping[str, object]) -> str:
    """`{"machine": …, "rows": [{"id", "value", "unit", "baseline", "ratio", …, "pairs"}]}`."""
    document = {"machine": dict(machine), "rows": [asdict(row) for row in report.rows]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_table(report: Report, machine: Mapping[str, object]) -> str:
    """The report as lines of text."""
    facts = [
        ("measured", report.title),
        ("machine", _machine_line(machine)),
        ("set-up", report.setup),
        ("formula", report.formula),
        ("ceiling", report.ceiling),
    ]
    lines = [f"{name:<9} {text}" for name, text in facts if text]
    lines += ["", *_columns([HEADINGS, *(_cells(row) for row in report.rows)])]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 0.1:
        return f"{value:.3g}"
    if abs(value) < SMALLEST:
        return f"{value:.2e}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}".rstrip("0")


def row_line(row: Row) -> str:
    """One row as progress tells it."""
    against = "" if row.baseline is None else f", against {number(row.baseline)}: {number(row.ratio)}"
    return f"{row.id} {number(row.value)} {row.unit}{against}"


def _cells(row: Row) -> tuple[str, ...]:
    spread = "-" if row.ratio_min is None else f"{number(row.ratio_min)} … {number(row.ratio_max)}"
    pairs = str(row.pairs) if row.pairs else "-"
    return (row.id, number(row.value), number(row.baseline), row.unit, number(row.ratio), spread, pairs)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _machine_line(machine: Mapping[str, object]) -> str:
    load = machine.get("load")
    busy = "" if load is None else f", load {load} before"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GiB, {machine['system']}, "
        f"Python {machine['python']}, OpenVINO {machine['openvino']}{busy}"
    )
