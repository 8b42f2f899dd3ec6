"""Opening the sides of a comparison all at once: each spends much of its start waiting or on another core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import trio

from fleetchat.transport.tasks import open_tasks

Side = TypeVar("Side")
Opener = Callable[[], AbstractAsyncContextManager[Side]]


@asynccontextmanager
async def all_open(openers: Mapping[str, Opener[Side]]) -> AsyncIterator[dict[str, Side]]:
    """All sides, in the order of their names here; all are closed at the end. Raises the first's failure."""
    opened: dict[str, Side] = {}
    ready, finished = {name: trio.Event() for name in openers}, trio.Event()

    async def hold(name: str, opener: Opener[Side]) -> None:
        async with opener() as side:
            opened[name] = side
            ready[name].set()
            await finished.wait()

    async with open_tasks() as tasks:
        for name, opener in openers.items():
            tasks.start_soon(hold, name, opener)
        for event in ready.values():
            await event.wait()
        yield {name: opened[name] for name in openers}
        finished.set()
