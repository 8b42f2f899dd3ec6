"""Notices what no callback tells: stages that fall silent, and stages that become slow (pure).

Batches are only put aside when they pass, and looked at when somebody wants to see the fleet: nothing of
this lies between a RESULT and the next batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetchat.fleet.chain import Stage
from fleetchat.fleet.event_log import EventKind, EventLog
from fleetchat.fleet.heat import Heat, Kind
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.timeline import PassedBatch, WorkKind

KEPT_BATCHES = 4096


@dataclass(slots=True)
class _Watched:
    """One stage; another address is another machine, or another process."""

    address: str
    heat: Heat = field(default_factory=Heat)
    factor: float | None = None
    silent_since: float | None = None


class Observer:
    """`look` as often as the fleet is shown; before it `note` every batch."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._passed: deque[PassedBatch] = deque(maxlen=KEPT_BATCHES)
        self._watched: dict[int, _Watched] = {}
        self._last_returned = float("-inf")

    def note(self, batch: PassedBatch) -> None:
        self._passed.append(batch)

    def look(self, stages: Sequence[Stage], now: float) -> None:
        """Take in what passed, and tell the log what has changed."""
        for stage in stages:
            watched = self._watched.get(stage.index)
            if watched is None or watched.address != str(stage.address):
                self._watched[stage.index] = _Watched(str(stage.address))
        while self._passed:
            self._take(self._passed.popleft())
        for stage in stages:
            self._judge(stage, now)
            self._listen(stage, now)

    def forget(self) -> None:
        """The stages have other layers now: what was fast before says nothing about them."""
        self._passed.clear()
        self._watched.clear()

    def heat(self, stage: int) -> tuple[float | None, bool]:
        """(times slower than its own best over the last 40 s, whether that is called throttling)."""
        watched = self._watched.get(stage)
        return (watched.factor, watched.heat.throttling) if watched else (None, False)

    def _take(self, batch: PassedBatch) -> None:
        crowded, self._last_returned = batch.sent < self._last_returned, batch.returned
        if any(piece.kind is WorkKind.PREFILL for piece in batch.pieces):
            return
        kind = Kind(sum(piece.rows for piece in batch.pieces), len(batch.pieces), crowded)
        for index, timing in enumerate(batch.timings):
            watched = self._watched.get(index)
            if watched is not None and timing.compute_us:
                watched.heat.note(
                    batch.returned,
                    kind,
                    cells=sum(live + dead for live, dead in timing.cells),
                    milliseconds=timing.compute_us / 1000,
                )

    def _judge(self, stage: Stage, now: float) -> None:
        watched = self._watched[stage.index]
        before = watched.heat.throttling
        watched.factor = watched.heat.judge(now)
        if watched.heat.throttling and not before:
            text = f"{stage.place} took {watched.factor:.1f} times its own best over the last 40 s"
            self._log.note(now, EventKind.THROTTLING, text, stage=stage.index)
        elif before and not watched.heat.throttling:
            text = f"{stage.place} is no longer slower than it was"
            self._log.note(now, EventKind.COOLED, text, stage=stage.index)

    def _listen(self, stage: Stage, now: float) -> None:
        watched = self._watched[stage.index]
        silent = None if stage.state is StageState.LOST else stage.silent_since
        if silent is not None and watched.silent_since is None:
            text = f"nothing was heard of {stage.place} for {now - silent:.1f} s"
            self._log.note(now, EventKind.STALLED, text, stage=stage.index)
        elif silent is None and watched.silent_since is not None and stage.state is not StageState.LOST:
            text = f"{stage.place} answers again after {now - watched.silent_since:.1f} s"
            self._log.note(now, EventKind.HEARD, text, stage=stage.index)
        watched.silent_since = silent
