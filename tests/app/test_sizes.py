"""Every size works, and may change while text streams in."""

from __future__ import annotations

import pytest

from fleetchat.app.events import ChatNumber, SnapshotTaken
from fleetchat.app.widgets.fleet_panels import FleetLine
from fleetchat.app.widgets.prompt import Prompt
from tests.app.pilot import running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, StreamingRuntime, snapshot, stage

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

WORDS = ["# Title\n\n", *[f"- item **{number}**\n" for number in range(40)], "\n```python\nx = 1\n```\n"]


async def test_at_80_columns_the_fleet_is_one_line() -> None:
    async with running(FakeRuntime(), (80, 24)) as pilot:
        await wait_until(pilot, lambda: "21.4 tokens/s" in screen_text(pilot))
        lines = screen_text(pilot).splitlines()
        assert lines[-2] == "  2 of 2 stages ready    21.4 tokens/s  back   0.3 ms  F9 shows more"
        for key in ("Send", "Newline", "Stop", "New chat", "Quit"):
            assert key in lines[-1]
        assert "…" not in "\n".join(lines)


async def test_beside_the_chat_all_figures_fit() -> None:
    async with running(FakeRuntime(), (140, 40)) as pilot:
        await wait_until(pilot, lambda: "21.4 tokens/s" in screen_text(pilot))
        lines = screen_text(pilot).splitlines()
        assert max(map(len, lines)) <= 140
        table = "\n".join(line[84:] for line in lines)
        for title in (
            "Stage",
            "State",
            "Memory",
            "Live",
            "Dead",
            "Free",
            "Heat",
            "Compute",
            "Queue",
            "Network",
        ):
            assert title in table
        assert "21.4 tokens/s" in table
        for key in ("Send", "Newline", "Stop", "New chat", "Quit"):
            assert key in lines[-1]


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (5, 3), (1, 1), (300, 100)])
async def test_a_message_can_be_sent_at_any_size(size: tuple[int, int]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, size) as pilot:
        await type_text(pilot, "hello")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)


async def test_at_20x5_what_is_typed_can_be_read() -> None:
    async with running(FakeRuntime(), (20, 5)) as pilot:
        await type_text(pilot, "hello")
        await wait_until(pilot, lambda: "hello" in screen_text(pilot))


async def test_many_stages_become_one_line_on_a_low_screen() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (80, 24)) as pilot:
        runtime.say(SnapshotTaken(snapshot(*(stage(index) for index in range(9)))))
        await wait_until(pilot, lambda: "9 of 9 stages ready" in screen_text(pilot))
        await pilot.resize_terminal(140, 50)
        await wait_until(pilot, lambda: "    8 ready" in screen_text(pilot))


async def test_resizing_while_a_reply_streams_loses_nothing() -> None:
    runtime = StreamingRuntime(WORDS)
    async with running(runtime) as pilot:
        await wait_until(pilot, lambda: "ready" in screen_text(pilot))
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted == [(ChatNumber(1), "a")])
        for width, height in [(20, 5), (140, 40), (40, 10), (200, 60), (80, 12), (81, 11), (5, 3), (80, 24)]:
            await pilot.resize_terminal(width, height)
            await pilot.press("x")
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await wait_until(pilot, lambda: "• item 39" in screen_text(pilot))
        assert pilot.app.query_one(Prompt).text == "x" * 8
        assert pilot.app.screen.query_one(FleetLine).display
