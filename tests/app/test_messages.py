"""What the runtime reports comes to the screen together, in order, and whole."""

from __future__ import annotations

import pytest

from fleetchat.app.events import ChatNumber, SnapshotTaken, TextArrived, Told
from fleetchat.app.messages import NewsWaiting, RuntimeNews, newest
from tests.app.pilot import chat_screen, running, wait_until
from tests.fakes.panel import busy_snapshot
from tests.fakes.runtime import FakeRuntime


def test_a_newer_snapshot_stands_for_those_before_it_and_nothing_else_is_lost() -> None:
    first, second = SnapshotTaken(busy_snapshot(1.0)), SnapshotTaken(busy_snapshot(2.0))
    one, two, three = (TextArrived(ChatNumber(1), text) for text in "abc")
    assert newest([one, first, two, second, three]) == (one, two, second, three)
    assert newest([one, two]) == (one, two)
    assert newest([]) == ()


@pytest.mark.asyncio
@pytest.mark.slow
async def test_what_is_reported_at_once_wakes_the_screen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        posted: list[object] = []
        taken: list[object] = []
        post, take = pilot.app.post_message, chat_screen(pilot)._take_event

        def counted(message: object) -> bool:
            if isinstance(message, NewsWaiting):
                posted.append(message)
            return post(message)

        async def noted(event: object) -> None:
            taken.append(event)
            await take(event)

        monkeypatch.setattr(pilot.app, "post_message", counted)
        monkeypatch.setattr(chat_screen(pilot), "_take_event", noted)
        told = [Told(f"news {number}") for number in range(5)]
        for event in told:
            runtime.say(event)
        await wait_until(pilot, lambda: len(taken) == 5)
        assert taken == told
        assert len(posted) == 1
        runtime.say(told[0])
        await wait_until(pilot, lambda: len(taken) == 6)
        assert len(posted) == 2
        assert RuntimeNews(told).events == tuple(told)
