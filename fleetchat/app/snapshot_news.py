"""Which snapshots are worth the screen's time (pure)."""

from __future__ import annotations

from fleetchat.app.events import SnapshotTaken
from fleetchat.app.panel.layout import ZOOMS
from fleetchat.app.panel.model import as_shown
from fleetchat.fleet.timeline import TimelineSnapshot


class SnapshotNews:
    """At rest nothing on the screen changes, and nothing is sent to it.

    The pipeline still moves for as long as the longest stretch that it can show.
    """

    def __init__(self) -> None:
        self._shown: object = None
        self._moves_until = 0.0  # on the coordinator's clock

    def has(self, taken: SnapshotTaken) -> bool:
        """Whether the screen would look different with it."""
        snapshot = taken.snapshot
        if _works(snapshot.timeline):
            self._moves_until = snapshot.taken + ZOOMS[-1]
        before, self._shown = self._shown, (as_shown(snapshot), taken.speeds, taken.sessions)
        return before != self._shown or snapshot.taken <= self._moves_until


def _works(timeline: TimelineSnapshot | None) -> bool:
    if timeline is None:
        return False
    lanes = (*timeline.stages, timeline.drafting)
    return timeline.complete_until < timeline.end or any(lane.blocks for lane in lanes)
