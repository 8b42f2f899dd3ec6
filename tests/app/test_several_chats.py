"""Several chats at once: each has its reply, its prompt and its marks."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from fleetchat.app.events import ChatNumber, ReplyFinished, SnapshotTaken, TextArrived
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.fleet.telemetry import FinishReason
from tests.app.pilot import chat_screen, new_tab, running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer, snapshot

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ONE, TWO, THREE = ChatNumber(1), ChatNumber(2), ChatNumber(3)


def tab_line(pilot: Pilot[None]) -> str:
    return screen_text(pilot).splitlines()[1].strip()


async def ask(pilot: Pilot[None], runtime: FakeRuntime, text: str) -> None:
    before = len(runtime.submitted)
    await type_text(pilot, text)
    await pilot.press("enter")
    await wait_until(pilot, lambda: len(runtime.submitted) == before + 1)


async def test_three_chats_are_answered_at_the_same_time() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        for number, text in enumerate(("alpha", "beta", "gamma"), start=1):
            if number > 1:
                await new_tab(pilot)
            await ask(pilot, runtime, text)
        assert runtime.submitted == [(ONE, "alpha"), (TWO, "beta"), (THREE, "gamma")]
        for turn in ("first", " second"):
            for number in (ONE, TWO, THREE):
                runtime.say(TextArrived(number, f"{turn}{number}"))
        speeds = {ONE: 10.0, TWO: 11.0, THREE: 12.5}
        runtime.say(SnapshotTaken(snapshot(tokens_per_s=33.5), speeds))
        await wait_until(pilot, lambda: "12.5/s" in screen_text(pilot))
        await wait_until(
            pilot, lambda: tab_line(pilot) == "1 ~ alpha 10.0/s  2 ~ beta 11.0/s  3 ~ gamma 12.5/s  +"
        )
        await wait_until(
            pilot, lambda: screen_text(pilot).splitlines()[0].endswith("3 chats writing   33.5 tokens/s")
        )
        await wait_until(pilot, lambda: "first3 second3" in screen_text(pilot))
        await wait_until(pilot, lambda: "first1" not in screen_text(pilot))

        runtime.say(ReplyFinished(ONE, answer("first1 second1")))
        lost = ("stage 1 is lost", "")
        runtime.say(ReplyFinished(TWO, answer("first2", reason=FinishReason.ERROR, error=lost)))
        await wait_until(pilot, lambda: "1 ● alpha  2 ! beta" in tab_line(pilot))
        await pilot.press("alt+1")
        await wait_until(pilot, lambda: "first1 second1" in screen_text(pilot))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await wait_until(pilot, lambda: "1 alpha  2 ! beta" in tab_line(pilot))
        await pilot.press("alt+2")
        await wait_until(pilot, lambda: "failed: stage 1 is lost" in screen_text(pilot))
        await wait_until(pilot, lambda: "first2" in screen_text(pilot))


async def test_a_hidden_chat_buffers_its_text_and_mounts_nothing() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        await new_tab(pilot)
        mounted = len(pilot.app.query("*"))
        for number in range(50):
            runtime.say(TextArrived(ONE, f"- item {number}\n"))
        await wait_until(pilot, lambda: "item 49" in chat_screen(pilot)._panes[ONE].state.path[-1].text)
        assert len(pilot.app.query("*")) == mounted
        await pilot.press("ctrl+pageup")
        await wait_until(pilot, lambda: "item 49" in screen_text(pilot))


async def test_every_chat_has_a_prompt_of_its_own() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await type_text(pilot, "one")
        await new_tab(pilot)
        await type_text(pilot, "two")
        await pilot.press("ctrl+pagedown")
        await wait_until(pilot, lambda: chat_screen(pilot).tabs.active == ONE)
        assert chat_screen(pilot).pane.prompt.text == "one"
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted == [(ONE, "one")])


async def test_a_message_that_waits_in_a_hidden_chat_is_sent() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        await type_text(pilot, "then")
        await pilot.press("enter", "ctrl+n")
        await wait_until(pilot, lambda: chat_screen(pilot).tabs.active == TWO)
        runtime.say(ReplyFinished(ONE, answer("done")))
        await wait_until(pilot, lambda: runtime.submitted[1:] == [(ONE, "then")])
        assert [message.content for message in runtime.turns[1].messages] == ["alpha", "done", "then"]


async def test_stop_is_for_the_chat_that_is_seen() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        await new_tab(pilot)
        await ask(pilot, runtime, "beta")
        await pilot.press("escape")
        await wait_until(pilot, lambda: runtime.stopped == [TWO])


async def test_a_closed_chat_is_reopened_with_its_messages() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        runtime.say(ReplyFinished(ONE, answer("kept reply")))
        await wait_until(pilot, lambda: "kept reply" in screen_text(pilot))
        await pilot.press("alt+w")  # the last tab: an empty chat takes its place
        await wait_until(pilot, lambda: "Type a message" in screen_text(pilot))
        await wait_until(pilot, lambda: tab_line(pilot) == "1 New chat  +")
        await pilot.press("alt+t")
        await wait_until(pilot, lambda: "kept reply" in screen_text(pilot))
        await wait_until(pilot, lambda: tab_line(pilot) == "1 New chat  2 alpha  +")


async def test_closing_a_busy_chat_ends_its_reply_and_reopening_keeps_the_text() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        runtime.say(TextArrived(ONE, "half a reply"))
        await wait_until(pilot, lambda: "half a reply" in screen_text(pilot))
        await pilot.press("f8")
        await wait_until(pilot, lambda: runtime.closed == [ONE])
        await pilot.press("alt+t")
        await wait_until(pilot, lambda: "half a reply" in screen_text(pilot))
        await wait_until(pilot, lambda: "stopped by you" in screen_text(pilot))
        await ask(pilot, runtime, "more")


async def test_a_chat_is_renamed_and_moved() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("f2")
        await wait_until(pilot, lambda: "Name of this chat" in screen_text(pilot))
        await pilot.press("escape")
        await wait_until(pilot, lambda: "Name of this chat" not in screen_text(pilot))
        await pilot.press("f2")
        await wait_until(pilot, lambda: "Name of this chat" in screen_text(pilot))
        await type_text(pilot, "Mine")
        await pilot.press("enter")
        await wait_until(pilot, lambda: tab_line(pilot) == "1 Mine  +")
        await pilot.press("ctrl+n", "alt+h")
        await wait_until(pilot, lambda: tab_line(pilot) == "1 New chat  2 Mine  +")
        await pilot.press("alt+l")
        await wait_until(pilot, lambda: tab_line(pilot) == "1 Mine  2 New chat  +")


async def test_tabs_answer_to_the_mouse() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.click("#tabs", offset=(13, 0))
        await wait_until(pilot, lambda: tab_line(pilot) == "1 New chat  2 New chat  +")
        assert chat_screen(pilot).tabs.active == TWO
        await pilot.click("#tabs", offset=(3, 0))
        await wait_until(pilot, lambda: chat_screen(pilot).tabs.active == ONE)
        await pilot.click("#tabs", offset=(16, 0), button=2)
        await wait_until(pilot, lambda: tab_line(pilot) == "1 New chat  +")


async def test_a_thought_is_folded_and_a_click_shows_it() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await ask(pilot, runtime, "alpha")
        runtime.say(TextArrived(ONE, "<think>\nlet me see"))
        await wait_until(pilot, lambda: "▸ Thinking, 3 words" in screen_text(pilot))
        runtime.say(ReplyFinished(ONE, answer("<think>\nlet me see\n</think>\n\nIt is **four**.")))
        await wait_until(pilot, lambda: "It is four." in screen_text(pilot))
        await wait_until(pilot, lambda: "let me see" not in screen_text(pilot))
        await pilot.click("ThoughtView")
        await wait_until(pilot, lambda: "let me see" in screen_text(pilot))
        assert pilot.app.query_one(ReplyView).text == "It is **four**."
