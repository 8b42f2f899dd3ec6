"""Memory of other processes that no file stands behind, and the most that it comes to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from fleetchat.system_text import text_of

INTERVAL = 0.05  # seconds between two looks


@dataclass(slots=True)
class Peak:
    """Bytes; 0 where the system does not say."""

    process: int = 0
    most: int = 0

    def look(self) -> None:
        self.most = max(self.most, anonymous_now(self.process))


def anonymous_now(process: int) -> int:
    """`RssAnon` of a process in bytes: cheap to ask, however much it maps. 0 when it is gone."""
    return rss_anon(text_of(Path(f"/proc/{process}/status"))) if process else 0


def rss_anon(status: str) -> int:
    """`RssAnon` of /proc/…/status, in bytes."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


@asynccontextmanager
async def watched(peak: Peak) -> AsyncIterator[None]:
    """Look at `peak.process`, which may be told later, all the time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, peak)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def _watch(peak: Peak) -> None:
    while True:
        peak.look()
        await trio.sleep(INTERVAL)
