"""Silence is measured, and time in which this process stood still is forgiven."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from fleetchat.transport.heartbeat import Heartbeat
from fleetchat.transport.link import Link

pytestmark = pytest.mark.trio


class Heard:
    """As much of a link as a heartbeat looks at."""

    def __init__(self) -> None:
        self.last_heard = trio.current_time()


async def test_silence_is_counted_from_the_last_sign_of_life(autojump_clock: trio.testing.MockClock) -> None:
    link = Heard()
    heartbeat = Heartbeat(cast(Link, link), 0.5)
    started = trio.current_time()

    async def live_for_a_while() -> None:
        for _ in range(4):
            await trio.sleep(1)
            link.last_heard = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live_for_a_while)
        await heartbeat.wait_silent(5.0)
    assert trio.current_time() - started == pytest.approx(9.0, abs=0.2)
    assert heartbeat.heard - started == pytest.approx(4.0, abs=1e-6)


async def test_a_process_that_stood_still_begins_anew(mock_clock: trio.testing.MockClock) -> None:
    heartbeat = Heartbeat(cast(Link, Heard()), 0.5)
    silences: list[float] = []

    async def listen() -> None:
        silences.append(await heartbeat.tick())
        silences.append(await heartbeat.tick())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.5)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(3600)
    assert silences == [pytest.approx(0.5), 0.0]


async def test_a_link_that_is_well_is_looked_at_once_an_interval_and_a_silent_one_more_often(
    autojump_clock: trio.testing.MockClock,
) -> None:
    link = Heard()
    heartbeat = Heartbeat(cast(Link, link), 0.5)
    link.last_heard = trio.current_time()
    ticks = []
    for _ in range(4):
        await heartbeat.tick()
        ticks.append(trio.current_time() - link.last_heard)
    assert ticks == [pytest.approx(0.5), pytest.approx(1.0), pytest.approx(1.125), pytest.approx(1.25)]
