"""How long a link has been silent.

Time in which this process itself stood still (stopped, suspended, computing) does not count: what the other
side sent meanwhile lies unread in the socket.
"""

from __future__ import annotations

import trio

from fleetchat.transport.link import Link

TICKS = 4  # an interval, once more than one went by without a sign of life


class Heartbeat:
    """Watches a link that is read and pinged every `interval` seconds."""

    def __init__(self, link: Link, interval: float) -> None:
        self.heard = link.last_heard
        self._link = link
        self._interval = interval
        self._awake_since = trio.current_time()

    async def tick(self) -> float:
        """Wait a moment; the seconds since `heard`, the last sign of life.

        An interval while the link is well, since every turn of an idle program costs; less when it is silent.
        """
        began = trio.current_time()
        well = began - max(self._link.last_heard, self._awake_since) <= self._interval
        planned = began + (self._interval if well else self._interval / TICKS)
        await trio.sleep_until(planned)
        now = trio.current_time()
        if now - planned > self._interval:
            self._awake_since = now
        self.heard = max(self._link.last_heard, self._awake_since)
        return now - self.heard

    async def wait_silent(self, seconds: float) -> None:
        """Until nothing was heard for so long."""
        while await self.tick() < seconds:
            pass
