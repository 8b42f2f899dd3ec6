from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from fleetchat.cli.ask_wait import Waiting


class Shown:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str, done: int = 0, total: int = 0) -> None:
        raise AssertionError("nothing is counted here")

    say = step

    def stop(self, text: str) -> None:
        raise AssertionError(text)

    def passing(self, text: str) -> None:
        self.lines.append(text)

    def clear(self) -> None:
        raise AssertionError("nothing is removed here")


@pytest.mark.trio
async def test_words_that_stand_there_tell_for_how_long(autojump_clock: MockClock) -> None:
    shown = Shown()
    waiting = Waiting(shown)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        waiting.note("stage 0: checking the shard")
        await trio.sleep(2.5)
        waiting.note("stage 0: loading the shard")
        await trio.sleep(4.0)
        waiting.end()
    assert shown.lines == [
        "stage 0: checking the shard",
        "stage 0: loading the shard",
        "stage 0: loading the shard, 4 s",
    ]
