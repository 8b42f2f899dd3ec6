"""What the panel shows at one moment (pure)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetchat.fleet.event_log import FleetEvent
from fleetchat.fleet.telemetry import FleetSnapshot, SessionSnapshot


@dataclass(frozen=True, slots=True)
class PanelView:
    """A snapshot, and the places of the tabs whose chats its sessions are (from 1)."""

    snapshot: FleetSnapshot
    tabs: Mapping[int, int] = field(default_factory=dict)

    def place(self, session: int | None) -> int | None:
        return None if session is None else self.tabs.get(session)

    @property
    def sessions(self) -> tuple[SessionSnapshot, ...]:
        """Those with a tab, in the order of the tabs."""
        known = (one for one in self.snapshot.sessions if one.session in self.tabs)
        return tuple(sorted(known, key=lambda one: self.tabs[one.session]))

    def time_of_day(self, at: float) -> str:
        """Of a moment of the coordinator's clock: `14:03:59`."""
        return time.strftime("%H:%M:%S", time.gmtime(at + self.snapshot.wall_shift))

    def whose(self, event: FleetEvent) -> str:
        """`stage 1`, `chat 2`, or nothing for the whole fleet."""
        if event.stage is not None:
            return f"stage {event.stage}"
        if event.session is None:
            return ""
        place = self.place(event.session)
        return f"chat {place}" if place is not None else "a chat"
