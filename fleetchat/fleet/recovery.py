"""What to do about a lost stage, and when to stop trying (pure).

A new epoch is a new attempt. An attempt was worth it when a token came out of its chain, or when the chain
lived long; attempts that were not are counted, and the pauses between them grow. So a peer that comes back
only to die again is not restarted for ever, while a fleet that loses a peer once an hour always recovers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.trouble import Cause, Remedy


def remedy_for(cause: Cause, *, embedded: bool, spares: int, repeated: bool) -> Remedy:
    """`repeated`: the attempt before this one brought nothing.

    Both ends of a broken data link may be well, so new links are tried first.
    """
    if cause is Cause.LINK and not repeated:
        return Remedy.REDIAL
    if embedded:
        return Remedy.RESTART
    if spares:
        return Remedy.SPARE
    return Remedy.NONE if cause is Cause.REFUSED else Remedy.REDIAL


@dataclass(slots=True)
class Attempts:
    """Counts attempts that brought nothing. Times are of one clock, in seconds."""

    deadlines: Deadlines
    count: int = 0
    since: float = field(default=0.0)

    def lost(self, now: float, *, lived: float, tokens: int) -> None:
        """The chain was lost after `lived` seconds, in which `tokens` were committed."""
        if tokens or lived >= self.deadlines.settled or not self.count:
            self.count, self.since = 0, now

    def next_pause(self, now: float) -> float | None:
        """Seconds to wait before the next attempt, which is counted; None when there is none."""
        pause = 0.0
        if self.count:
            pause = min(self.deadlines.pause * 2.0 ** (self.count - 1), self.deadlines.longest_pause)
            if self.count >= self.deadlines.attempts or now + pause - self.since > self.deadlines.recovery:
                return None
        self.count += 1
        return pause
