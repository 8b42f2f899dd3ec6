"""What befell the fleet, one entry an event, for people to read (pure: the caller gives the time)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

KEPT_EVENTS = 500


class EventKind(StrEnum):
    """The value is the word that panels show and filter by."""

    LOST = "lost"
    STALLED = "stalled"
    HEARD = "heard again"
    RECOVERED = "recovered"
    FAILED = "given up"
    MOVING = "moving"
    MOVED = "moved"
    STAYED = "not moved"
    COMPACTION = "compaction"
    EVICTION = "eviction"
    REFUSED = "refused"
    THROTTLING = "throttling"
    COOLED = "cooled down"


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """`at` is in seconds of the coordinator's clock; `number` counts from 1 in order of noticing."""

    number: int
    at: float
    kind: EventKind
    text: str
    stage: int | None = None
    session: int | None = None


class EventLog:
    """The last events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[FleetEvent] = deque(maxlen=KEPT_EVENTS)
        self._listed: tuple[FleetEvent, ...] = ()
        self._count = 0

    def note(
        self, at: float, kind: EventKind, text: str, *, stage: int | None = None, session: int | None = None
    ) -> None:
        """Something happened to a stage, a session, or the whole fleet."""
        self._count += 1
        self._events.append(FleetEvent(self._count, at, kind, text, stage, session))

    def listed(self) -> tuple[FleetEvent, ...]:
        """All that are kept; the same object as long as nothing happens."""
        if (self._listed[-1].number if self._listed else 0) != self._count:
            self._listed = tuple(self._events)
        return self._listed
