"""The most that a chain can do under delay, from what was measured without it (pure).

tokens/s <= min(S · E / (legs · d + C), E / B): S sessions, E tokens emitted a round, C seconds of an unqueued
traversal, B seconds of the slowest stage for one session's share of a batch. The first is reached when
all sessions are always on their way, the second when the slowest stage is never idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fleetchat.fleet.telemetry import Answer
from fleetchat.fleet.timeline import PassedBatch, WorkKind


@dataclass(frozen=True, slots=True)
class Round:
    """One batch without prefill. `rows` and `slowest` are for one of its sessions; times are seconds."""

    rows: float
    traversal: float
    slowest: float


@dataclass(frozen=True, slots=True)
class Costs:
    """C and B."""

    traversal: float
    slowest: float


def rounds_of(batches: Iterable[PassedBatch]) -> list[Round]:
    """What the batches without prefill took; time in queues does not count."""
    rounds = []
    for batch in batches:
        if any(piece.kind is WorkKind.PREFILL for piece in batch.pieces) or not batch.timings:
            continue
        sessions = len(batch.pieces)
        queued = sum(timing.queue_us for timing in batch.timings) / 1e6
        slowest = max(timing.compute_us for timing in batch.timings) / 1e6
        rows = sum(piece.rows for piece in batch.pieces)
        rounds.append(Round(rows / sessions, batch.returned - batch.sent - queued, slowest / sessions))
    return rounds


def costs_at(measured: Sequence[Round], rows: Sequence[float]) -> Costs:
    """C and B of rounds with so many rows each, by what rounds of that many rows took in `measured`.

    Between two numbers of rows the costs are interpolated; beyond those that were measured they are taken
    as at the end, which makes the bound higher. Raises ValueError when nothing was measured.
    """
    if not measured or not rows:
        raise ValueError("no round was measured")
    by_rows: dict[float, list[Round]] = defaultdict(list)
    for one in measured:
        by_rows[one.rows].append(one)
    known = sorted(by_rows)
    traversals = [fmean(one.traversal for one in by_rows[count]) for count in known]
    slowest = [fmean(one.slowest for one in by_rows[count]) for count in known]
    return Costs(
        traversal=float(np.interp(rows, known, traversals).mean()),
        slowest=float(np.interp(rows, known, slowest).mean()),
    )


def emitted_a_round(answers: Sequence[Answer]) -> float:
    """E: tokens of the replies / rounds that they took. Raises ValueError when there was no round."""
    rounds = sum(answer.speculation.rounds for answer in answers)
    if rounds == 0:
        raise ValueError("no round was measured")
    return sum(answer.completion_tokens for answer in answers) / rounds


def bound(*, sessions: int, emitted: float, delay: float, legs: int, costs: Costs) -> float:
    """Tokens a second; `delay` is one way, in seconds, on each of `legs`."""
    return min(sessions * emitted / (legs * delay + costs.traversal), emitted / costs.slowest)
