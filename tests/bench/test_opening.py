"""Several sides that are opened at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from fleetchat.bench.opening import all_open
from fleetchat.errors import FleetError

pytestmark = pytest.mark.trio


class Doors:
    """Sides that open when all of them have been asked to."""

    def __init__(self, count: int) -> None:
        self.waiting = count
        self.all_asked = trio.Event()
        self.closed: set[str] = set()

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[str]:
        self.waiting -= 1
        if self.waiting == 0:
            self.all_asked.set()
        await self.all_asked.wait()
        try:
            yield name
        finally:
            self.closed.add(name)


@asynccontextmanager
async def refuse() -> AsyncIterator[str]:
    raise FleetError("no memory")
    yield ""


async def test_all_are_open_at_once_in_their_order_and_closed_at_the_end() -> None:
    doors = Doors(3)
    with trio.fail_after(30):
        async with all_open({name: partial(doors.open, name) for name in ("b", "c", "a")}) as sides:
            assert list(sides.items()) == [("b", "b"), ("c", "c"), ("a", "a")]
            assert doors.closed == set()
    assert doors.closed == {"a", "b", "c"}


async def test_one_that_cannot_be_opened_closes_the_others_and_is_raised_by_itself() -> None:
    doors = Doors(1)
    with trio.fail_after(30), pytest.raises(FleetError, match="no memory"):
        async with all_open({"a": partial(doors.open, "a"), "b": refuse}):
            pytest.fail("it was opened")


async def test_a_failure_inside_closes_all_and_keeps_its_type() -> None:
    doors = Doors(2)
    with trio.fail_after(30), pytest.raises(FleetError, match="a reply failed"):
        async with all_open({name: partial(doors.open, name) for name in "ab"}):
            raise FleetError("a reply failed")
    assert doors.closed == {"a", "b"}
