"""The transcript follows the newest text, and holds still when the user scrolled up."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from fleetchat.app.events import ChatNumber, ReplyFinished, TextArrived
from fleetchat.app.widgets.transcript import Transcript
from tests.app.pilot import chat_screen, running, screen_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FIRST = ChatNumber(1)
HINT = "End goes to the newest text"


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last))


async def begin_reply(pilot: Pilot[None], runtime: FakeRuntime) -> Transcript:
    await pilot.press("a", "enter")
    await wait_until(pilot, lambda: runtime.submitted)
    runtime.say(TextArrived(FIRST, numbered(0, 60)))
    await wait_until(pilot, lambda: "line 59" in screen_text(pilot))
    return pilot.app.query_one(Transcript)


async def test_new_text_is_followed() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        runtime.say(TextArrived(FIRST, numbered(60, 90)))
        await wait_until(pilot, lambda: "line 89" in screen_text(pilot))
        assert transcript.following
        await wait_until(pilot, lambda: HINT not in screen_text(pilot))


async def test_scrolled_up_it_holds_still_until_end_is_pressed() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        await pilot.press("pageup")
        await wait_until(pilot, lambda: HINT in screen_text(pilot))
        held_at, reach = transcript.scroll_y, transcript.max_scroll_y
        runtime.say(TextArrived(FIRST, numbered(60, 90)))
        await wait_until(pilot, lambda: transcript.max_scroll_y > reach)
        assert transcript.scroll_y == held_at
        await pilot.press("end")
        await wait_until(pilot, lambda: "line 89" in screen_text(pilot))
        await wait_until(pilot, lambda: HINT not in screen_text(pilot))
        runtime.say(TextArrived(FIRST, numbered(90, 120)))
        await wait_until(pilot, lambda: "line 119" in screen_text(pilot))


async def test_scrolled_up_the_count_of_tokens_stays_beside_the_way_back() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await begin_reply(pilot, runtime)
        await pilot.press("pageup")
        await wait_until(pilot, lambda: HINT in screen_text(pilot))
        chat_screen(pilot).pane.prompt.set_text("word " * 200)
        count = "about 250 of 2,048 tokens"
        await wait_until(pilot, lambda: f"{count} · ↓ {HINT}" in screen_text(pilot))
        await pilot.press("ctrl+end", "end")
        await wait_until(pilot, lambda: HINT not in screen_text(pilot) and count in screen_text(pilot))


async def test_the_end_of_a_reply_does_not_move_a_held_view() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        end, page = transcript.max_scroll_y, transcript.scrollable_content_region.height
        held_at = end - 3 * page
        await pilot.press("pageup", "pageup", "pageup")
        await wait_until(pilot, lambda: transcript.scroll_y == held_at)
        text = "\n".join(f"line {number}\n" for number in range(60))
        runtime.say(ReplyFinished(FIRST, answer(text)))
        await wait_until(pilot, lambda: "Writing" not in screen_text(pilot))
        await pilot.pause()
        assert transcript.scroll_y == held_at


async def test_one_row_up_already_holds() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        await pilot.press("ctrl+up")
        await wait_until(pilot, lambda: not transcript.following)
        assert transcript.scroll_y == transcript.max_scroll_y - 1


async def test_scrolling_down_to_two_rows_from_the_end_follows_again() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        await pilot.press(*["ctrl+up"] * 4)
        await wait_until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y - 4)
        await pilot.press("ctrl+down")
        await wait_until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y - 3)
        assert not transcript.following
        await pilot.press("ctrl+down")
        await wait_until(pilot, lambda: transcript.following)
        await wait_until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y)


async def test_sending_goes_to_the_newest_text() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        transcript = await begin_reply(pilot, runtime)
        runtime.say(ReplyFinished(FIRST, answer(numbered(0, 60))))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await pilot.press("pageup")
        await wait_until(pilot, lambda: not transcript.following)
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: transcript.following)
        await wait_until(pilot, lambda: "    b" in screen_text(pilot).splitlines())


async def test_a_short_chat_has_nothing_to_hold() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("pageup")
        await pilot.pause()
        assert pilot.app.query_one(Transcript).following
