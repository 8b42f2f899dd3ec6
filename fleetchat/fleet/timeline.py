"""Which session held which stage from when to when, on the coordinator's clock (pure: no clock in here).

A RESULT says how long its batch waited and was computed on each stage; when it was sent and came back is
known here. The rest of the traversal was spent between the stages. It is spread over the legs in
proportion to their last measured one-way times, evenly while there are none. So a block's length is what
the stage measured, and its place is right within the error of that spreading. A stage does one thing at
a time: a block that would begin before the one before it ended is moved to that end.

Slices of one batch share the batch's time by their rows, in their order. Engines that run them in one
pass have no shorter truth than the batch, and engines that run them in turn come close to that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetchat.wire.frames import StageTiming

KEPT_BLOCKS = 4096  # a lane: 10 s of 8 sessions at 50 tokens/s each
DRAFT_LANE = -1


class WorkKind(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    VERIFY = "verify"
    DRAFT = "draft"


def kind_of(rows: int, drafts: int) -> WorkKind:
    """What a slice is."""
    if drafts:
        return WorkKind.VERIFY
    return WorkKind.DECODE if rows == 1 else WorkKind.PREFILL


@dataclass(frozen=True, slots=True)
class Piece:
    """One slice of a batch. `session` is the number that the coordinator's caller knows."""

    session: int
    rows: int
    kind: WorkKind


@dataclass(frozen=True, slots=True)
class PassedBatch:
    """A batch that came back. Times are seconds on the coordinator's clock."""

    pieces: tuple[Piece, ...]
    sent: float
    returned: float
    timings: tuple[StageTiming, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """`lane` is a stage's index, or DRAFT_LANE."""

    lane: int
    session: int
    kind: WorkKind
    rows: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Lane:
    """Blocks in order of time. `busy` is their share of the time that is known completely."""

    lane: int
    blocks: tuple[Block, ...]
    busy: float

    @property
    def bubbles(self) -> float:
        return 1.0 - self.busy


@dataclass(frozen=True, slots=True)
class TimelineSnapshot:
    """The last seconds. What happened after `complete_until` is still on its way: blocks may be missing."""

    start: float
    end: float
    complete_until: float
    stages: tuple[Lane, ...]
    drafting: Lane


def passage(batch: PassedBatch, legs: Sequence[float]) -> list[tuple[float, float]]:
    """(start, end) of a batch on each stage. `legs` has one-way seconds, the return last; 0 = unknown."""
    inside = sum(timing.queue_us + timing.compute_us for timing in batch.timings) / 1e6
    between = max(0.0, batch.returned - batch.sent - inside)
    measured = sum(legs) if all(leg > 0 for leg in legs) else 0.0
    now = batch.sent
    spans = []
    for timing, leg in zip(batch.timings, legs, strict=False):
        now += between * (leg / measured if measured else 1 / (len(batch.timings) + 1))
        start = now + timing.queue_us / 1e6
        now = start + timing.compute_us / 1e6
        spans.append((start, now))
    return spans


def split(pieces: Sequence[Piece], lane: int, start: float, end: float) -> list[Block]:
    """The blocks of one batch on one stage."""
    rows = sum(piece.rows for piece in pieces)
    blocks = []
    for piece in pieces:
        stop = start + (end - start) * piece.rows / rows
        blocks.append(Block(lane, piece.session, piece.kind, piece.rows, start, stop))
        start, rows = stop, rows - piece.rows
    return blocks


def busy_share(blocks: Iterable[Block], start: float, end: float) -> float:
    """Share of the time that the blocks cover; they do not overlap."""
    if end <= start:
        return 0.0
    covered = sum(max(0.0, min(block.end, end) - max(block.start, start)) for block in blocks)
    return min(1.0, covered / (end - start))


class Timeline:
    """The last blocks of every lane. `on_block` gets each block once, when it is known."""

    def __init__(self, stages: int) -> None:
        self.on_block: Callable[[Block], None] = lambda block: None
        self._lanes: list[deque[Block]] = [deque(maxlen=KEPT_BLOCKS) for _ in range(stages)]
        self._drafting: deque[Block] = deque(maxlen=KEPT_BLOCKS)

    def resize(self, stages: int) -> None:
        """The chain has so many stages from now on; lanes that it has no longer are forgotten."""
        del self._lanes[stages:]
        while len(self._lanes) < stages:
            self._lanes.append(deque(maxlen=KEPT_BLOCKS))

    def note_batch(self, batch: PassedBatch, legs: Sequence[float]) -> None:
        """A RESULT arrived. Stages that computed nothing of it get no block."""
        for stage, (start, end) in enumerate(passage(batch, legs)):
            if end <= start:
                continue
            lane = self._lanes[stage]
            begin = max(start, lane[-1].end) if lane else start
            for block in split(batch.pieces, stage, begin, begin + end - start):
                lane.append(block)
                self.on_block(block)

    def note_draft(self, session: int, drafts: int, start: float, end: float) -> None:
        """A drafter proposed `drafts` ids. It serves one session at a time: the others waited for it."""
        begin = max(start, self._drafting[-1].end) if self._drafting else start
        block = Block(DRAFT_LANE, session, WorkKind.DRAFT, drafts, begin, max(begin, end))
        self._drafting.append(block)
        self.on_block(block)

    def snapshot(self, now: float, *, seconds: float, in_flight_since: float | None) -> TimelineSnapshot:
        """The last `seconds`; `in_flight_since` is when the oldest batch without RESULT was sent."""
        start = now - seconds
        complete = max(start, now if in_flight_since is None else min(now, in_flight_since))
        return TimelineSnapshot(
            start=start,
            end=now,
            complete_until=complete,
            stages=tuple(_lane(index, lane, start, complete) for index, lane in enumerate(self._lanes)),
            drafting=_lane(DRAFT_LANE, self._drafting, start, complete),
        )


def _lane(index: int, blocks: deque[Block], start: float, complete: float) -> Lane:
    recent: list[Block] = []
    for block in reversed(blocks):
        if block.end <= start:
            break
        recent.append(block)
    shown = tuple(reversed(recent))
    return Lane(index, shown, busy_share(shown, start, complete))
