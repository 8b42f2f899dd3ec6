"""What a user does in the chat, on a runtime whose every answer the test gives."""

from __future__ import annotations

import asyncio
import time

import pytest
from textual.events import Key
from textual.widgets import Markdown

from fleetchat.app.events import (
    BuildProgressed,
    ChatNumber,
    FleetReady,
    PrefillProgressed,
    ReplyFinished,
    RuntimeFailed,
    SnapshotTaken,
    StartProgressed,
    TextArrived,
)
from fleetchat.app.screens.failure import FailureScreen
from fleetchat.app.widgets.prompt import Prompt
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.fleet.telemetry import FinishReason, StageState
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.fakes.runtime import CONTEXT, MODEL, FakeRuntime, answer, snapshot, stage

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FIRST = ChatNumber(1)


async def test_enter_sends_and_the_reply_becomes_markdown() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await type_text(pilot, "Capital of France")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        assert runtime.submitted == [(FIRST, "Capital of France")]
        assert pilot.app.query_one(Prompt).text == ""

        runtime.say(TextArrived(FIRST, "It is **Pa"), TextArrived(FIRST, "ris**."))
        await wait_until(pilot, lambda: "It is **Paris**." in screen_text(pilot))
        await wait_until(pilot, lambda: "Writing · Esc stops" in screen_text(pilot))

        runtime.say(ReplyFinished(FIRST, answer("It is **Paris**.")))
        await wait_until(pilot, lambda: "It is Paris." in screen_text(pilot))
        assert pilot.app.query_one(Markdown).source == "It is **Paris**."
        await wait_until(
            pilot,
            lambda: "3 tokens · 21.4 tokens/s · first token after 0.18 s · finished" in screen_text(pilot),
        )
        await wait_until(pilot, lambda: "Writing" not in screen_text(pilot))


async def test_single_newlines_of_a_reply_are_kept() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(ReplyFinished(FIRST, answer("Roses are **red**,\nviolets are blue.")))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await wait_until(pilot, lambda: "    Roses are red,\n    violets are blue." in screen_text(pilot))


async def test_escape_stops_and_the_text_stays() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("escape")
        assert runtime.stopped == []
        await type_text(pilot, "Count")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(FIRST, "one two"))
        await pilot.press("escape")
        await wait_until(pilot, lambda: runtime.stopped == [FIRST])
        runtime.say(ReplyFinished(FIRST, answer("one two", reason=FinishReason.CANCELLED)))
        await wait_until(pilot, lambda: "stopped by you" in screen_text(pilot))
        await wait_until(pilot, lambda: "one two" in screen_text(pilot))


async def test_newline_keys_make_newlines() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        assert runtime.submitted == [(FIRST, "a\nb\nc\nd")]


async def test_an_empty_message_is_not_sent() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("enter", "space", "ctrl+j", "enter")
        await pilot.pause()
        assert runtime.submitted == []


async def test_a_message_typed_before_the_fleet_is_ready_is_sent_then() -> None:
    runtime = FakeRuntime()
    async with running(runtime, ready=False) as pilot:
        await wait_until(pilot, lambda: "you may type already" in screen_text(pilot))
        await wait_until(pilot, lambda: screen_text(pilot).splitlines()[0].endswith("starting"))
        await type_text(pilot, "Hello")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "Sent when the fleet is ready" in screen_text(pilot))
        assert pilot.app.query_one(Prompt).text == "Hello"
        assert runtime.submitted == []
        runtime.become_ready()
        await wait_until(pilot, lambda: runtime.submitted)
        assert runtime.submitted == [(FIRST, "Hello")]
        assert pilot.app.query_one(Prompt).text == ""


@pytest.mark.parametrize("key", ["escape", "x"])
async def test_a_queued_message_is_taken_back_by_escape_and_by_editing(key: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime, ready=False) as pilot:
        await pilot.press("h", "enter", key)
        await wait_until(pilot, lambda: "you may type already" in screen_text(pilot))
        runtime.become_ready()
        await wait_until(pilot, lambda: "ready" in screen_text(pilot).splitlines()[0])
        assert runtime.submitted == []
        assert pilot.app.query_one(Prompt).text.startswith("h")


async def test_a_message_typed_while_a_reply_is_written_follows_it() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: len(runtime.submitted) == 1)
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: "Sent when this reply is complete" in screen_text(pilot))
        runtime.say(ReplyFinished(FIRST, answer("done")))
        await wait_until(pilot, lambda: len(runtime.submitted) == 2)
        assert runtime.submitted[1] == (FIRST, "b")


async def test_late_text_of_a_closed_chat_is_dropped() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(FIRST, "old text"))
        await wait_until(pilot, lambda: "old text" in screen_text(pilot))
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Type a message, Enter sends." in screen_text(pilot))
        assert runtime.closed == [FIRST]
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: len(runtime.submitted) == 2)
        assert runtime.submitted[1] == (ChatNumber(2), "b")
        runtime.say(TextArrived(FIRST, "late"), ReplyFinished(FIRST, answer("late")))
        runtime.say(TextArrived(ChatNumber(2), "fresh"))
        await wait_until(pilot, lambda: "fresh" in screen_text(pilot))
        assert "late" not in screen_text(pilot)
        assert len(pilot.app.query(ReplyView)) == 1
        await wait_until(pilot, lambda: "Writing · Esc stops" in screen_text(pilot))


async def test_keys_and_a_new_chat_do_not_wait_for_a_long_reply_to_be_rendered() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        items = "".join(f"- item **{number}**\n" for number in range(100))
        runtime.say(ReplyFinished(FIRST, answer(items)))
        prompt = pilot.app.query_one(Prompt)
        pilot.app.post_message(Key("x", "x"))
        pilot.app.post_message(Key("ctrl+n", None))
        while prompt.text != "x":  # noqa: ASYNC110  (the pilot's own pause would wait for the rendering)
            await asyncio.sleep(0)
        assert "finished" not in screen_text(pilot)
        await wait_until(pilot, lambda: "Type a message, Enter sends." in screen_text(pilot))
        assert prompt.text == "x"
        assert chat_screen(pilot).pane.prompt.text == ""


async def test_the_build_shows_step_and_bar() -> None:
    runtime = FakeRuntime()
    async with running(runtime, ready=False) as pilot:
        runtime.say(BuildProgressed("cutting the model", 3, 6))
        await wait_until(pilot, lambda: "Shards: cutting the model  ███" in screen_text(pilot))
        await wait_until(pilot, lambda: "50 %" in screen_text(pilot))
        runtime.say(StartProgressed("starting shard peer 0"))
        await wait_until(pilot, lambda: "starting shard peer 0 …" in screen_text(pilot))
        runtime.become_ready()
        await wait_until(pilot, lambda: "starting shard peer" not in screen_text(pilot))


async def test_the_prefill_is_told_in_numbers() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(PrefillProgressed(FIRST, 512, 2000))
        await wait_until(pilot, lambda: "Reading the prompt, 512 of 2,000 tokens" in screen_text(pilot))


@pytest.mark.parametrize("key", ["r", "enter"])
async def test_a_failure_says_why_and_is_tried_again(key: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime, ready=False) as pilot:
        await type_text(pilot, "kept")
        runtime.say(RuntimeFailed("no network: the model cannot be fetched", "use shards build --from FILE"))
        await wait_until(pilot, lambda: "no network: the model cannot be fetched" in screen_text(pilot))
        await wait_until(pilot, lambda: "hint: use shards build --from FILE" in screen_text(pilot))
        await wait_until(pilot, lambda: "Ctrl+Q" in screen_text(pilot))
        await pilot.press(key)
        await wait_until(pilot, lambda: runtime.retried == 1)
        runtime.become_ready()
        await wait_until(pilot, lambda: "ready" in screen_text(pilot).splitlines()[0])
        assert pilot.app.query_one(Prompt).text == "kept"


async def test_after_a_failure_one_can_read_and_try_again_later() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(FIRST, "half a rep"))
        lost = ("stage 1 is lost", "start it again")
        runtime.say(ReplyFinished(FIRST, answer("half a rep", reason=FinishReason.ERROR, error=lost)))
        runtime.say(RuntimeFailed(*lost))
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FailureScreen))
        await pilot.press("escape")
        await wait_until(pilot, lambda: "failed: stage 1 is lost" in screen_text(pilot))
        await wait_until(pilot, lambda: "half a rep" in screen_text(pilot))
        await wait_until(pilot, lambda: "Enter shows why" in screen_text(pilot))
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FailureScreen))
        await pilot.press("r")
        await wait_until(pilot, lambda: "Starting the fleet again" in screen_text(pilot))
        await wait_until(pilot, lambda: "2 of 2 stages ready" not in screen_text(pilot))
        runtime.become_ready()
        await wait_until(pilot, lambda: len(runtime.submitted) == 2)
        await wait_until(pilot, lambda: "2 of 2 stages ready" in screen_text(pilot))
        assert runtime.submitted[1] == (FIRST, "b")


@pytest.mark.parametrize("key", ["r", "enter"])
async def test_on_a_tiny_screen_a_failure_shows_its_reason_and_keys(key: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (40, 10)) as pilot:
        runtime.say(RuntimeFailed("stage 1 is lost", "start it again"))
        for text in ("stage 1 is lost", "hint: start it again", "R tries again, Esc goes back to the"):
            await wait_until(pilot, lambda text=text: text in screen_text(pilot))
        await pilot.press(key)
        await wait_until(pilot, lambda: runtime.retried == 1)


async def test_the_context_limit_is_said_plainly() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(ReplyFinished(FIRST, answer("x", reason=FinishReason.CONTEXT)))
        expected = f"the context of {CONTEXT:,} tokens is full; start a new chat (Ctrl+N)"
        await wait_until(pilot, lambda: expected in " ".join(screen_text(pilot).split()))


async def test_the_stage_table_shows_what_a_snapshot_says() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        lost = stage(1, state=StageState.LOST, detail="connection reset")
        runtime.say(SnapshotTaken(snapshot(stage(0, compute=12.34), lost)))
        await wait_until(pilot, lambda: "12.3" in screen_text(pilot))
        await wait_until(
            pilot, lambda: "Stage 1 at 127.0.0.1:41001 is lost: connection reset" in screen_text(pilot)
        )


async def test_a_reply_without_any_token_shows_why() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        refused = answer("", reason=FinishReason.ERROR, error=("the prompt is too long", "shorten it"))
        runtime.say(ReplyFinished(FIRST, refused))
        await wait_until(pilot, lambda: "failed: the prompt is too long" in screen_text(pilot))
        await wait_until(pilot, lambda: "hint: shorten it" in screen_text(pilot))
        assert len(pilot.app.query(Markdown)) == 0


@pytest.mark.parametrize("keys", [("ctrl+q",), ("ctrl+c", "ctrl+c")])
@pytest.mark.parametrize("state", ["starting", "writing", "failed"])
async def test_the_program_leaves_in_every_state(keys: tuple[str, ...], state: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime, ready=False) as pilot:
        if state == "writing":
            runtime.say(FleetReady(MODEL, CONTEXT))
            await pilot.press("a", "enter")
            await wait_until(pilot, lambda: runtime.submitted)
        elif state == "failed":
            runtime.say(RuntimeFailed("broken", ""))
            await wait_until(pilot, lambda: isinstance(pilot.app.screen, FailureScreen))
        began = time.monotonic()
        await pilot.press(*keys)
        await wait_until(pilot, lambda: runtime.shut_down and not pilot.app.is_running)
        assert time.monotonic() - began < 2


async def test_one_ctrl_c_does_not_leave() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: "Press Ctrl+C again to leave" in screen_text(pilot))
        assert not runtime.shut_down


async def test_ctrl_c_copies_what_is_selected() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await type_text(pilot, "copy me")
        pilot.app.query_one(Prompt).select_all()
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: pilot.app.clipboard == "copy me")
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not runtime.shut_down
