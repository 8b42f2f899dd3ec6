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
        mock_clock.jump(0.125)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(3600)
    assert silences == [pytest.approx(0.125), 0.0]
