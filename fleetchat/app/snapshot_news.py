"""Which snapshots are worth the screen's time (pure)."""

from __future__ import annotations

from fleetchat.app.events import SnapshotTaken
from fleetchat.app.panel.model import as_shown
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.telemetry import FleetSnapshot
from fleetchat.fleet.timeline import TimelineSnapshot

# Seconds; what the screen draws from other sources follows by then (places of tabs, say).
LONGEST_SILENCE = 1.0


class SnapshotNews:
    """Changes and a pipeline at work go to the screen at once; at rest, one snapshot a second does."""

    def __init__(self) -> None:
        self._shown: object = None
        self._told = 0.0  # when one was sent, on the coordinator's clock

    def has(self, taken: SnapshotTaken) -> bool:
        """Whether the screen wants it. One that it gets is the newest that it has."""
        snapshot = taken.snapshot
        works = _works(snapshot.timeline)
        before, self._shown = self._shown, (works, as_shown(snapshot), taken.speeds, taken.sessions)
        wanted = works or before != self._shown or snapshot.taken - self._told >= LONGEST_SILENCE
        if wanted:
            self._told = snapshot.taken
        return wanted


class RefusedMoves:
    """Moves that failed, each told once: who asked for one looks at the chat, not at the list of events."""

    def __init__(self) -> None:
        self._seen = 0  # number of the last event

    def new(self, snapshot: FleetSnapshot) -> list[str]:
        """What to tell of the moves that failed since the last snapshot."""
        fresh = [event for event in snapshot.events if event.number > self._seen]
        self._seen = fresh[-1].number if fresh else self._seen
        return [f"The fleet did not move: {event.text}" for event in fresh if event.kind is EventKind.STAYED]


def _works(timeline: TimelineSnapshot | None) -> bool:
    """Whether work is in sight, or on its way."""
    if timeline is None:
        return False
    lanes = (*timeline.stages, timeline.drafting)
    return timeline.complete_until < timeline.end or any(lane.blocks for lane in lanes)
