"""Stop, regenerate, edit, continue, other versions, settings: what a turn can be, on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from fleetchat.app.events import ChatNumber, ReplyFinished, TextArrived
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.fleet.telemetry import Answer, FinishReason
from tests.app.pilot import chat_screen, running, say, screen_text, wait_until
from tests.app.test_stored_chats import stored_messages
from tests.fakes.runtime import FakeRuntime, answer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ONE = ChatNumber(1)


async def talk(pilot: Pilot[None], runtime: FakeRuntime, text: str, reply: Answer) -> None:
    before = len(runtime.turns)
    await say(pilot, text)
    await answered(pilot, runtime, before + 1, reply)


async def answered(pilot: Pilot[None], runtime: FakeRuntime, turns: int, reply: Answer) -> None:
    """Wait for so many turns, then finish the last of them."""
    await wait_until(pilot, lambda: len(runtime.turns) == turns)
    runtime.say(ReplyFinished(ONE, reply))
    await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)


def contents(runtime: FakeRuntime) -> list[str]:
    return [message.content for message in runtime.turns[-1].messages]


async def test_regenerate_draws_another_reply_and_both_can_be_seen() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await talk(pilot, runtime, "question", answer("first answer"))
        await pilot.press("f5")
        await answered(pilot, runtime, 2, answer("second answer"))
        assert runtime.turns[1].another
        assert contents(runtime) == ["question"]
        await wait_until(pilot, lambda: "second answer" in screen_text(pilot))
        await wait_until(pilot, lambda: "first answer" not in screen_text(pilot))
        await wait_until(pilot, lambda: "2 of 2" in screen_text(pilot))
        await pilot.press("alt+v")
        await wait_until(pilot, lambda: "first answer" in screen_text(pilot))
        await wait_until(pilot, lambda: "1 of 2" in screen_text(pilot))
        await talk(pilot, runtime, "more", answer("third"))
        assert contents(runtime) == ["question", "first answer", "more"]


async def test_a_failed_reply_is_tried_again_in_its_place(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        failed = answer("", reason=FinishReason.ERROR, error=("stage 1 is lost", "start it"))
        await talk(pilot, runtime, "question", failed)
        await say(pilot, "/retry")
        await answered(pilot, runtime, 2, answer("an answer"))
        await wait_until(pilot, lambda: "an answer" in screen_text(pilot))
        await wait_until(pilot, lambda: "stage 1 is lost" not in screen_text(pilot))
        await wait_until(pilot, lambda: " of 2" not in screen_text(pilot).replace("2 of 2 stages ready", ""))
        await wait_until(pilot, lambda: len(stored_messages(tmp_path)) == 2)


async def test_a_message_that_the_model_does_not_see_is_marked() -> None:
    words = "not answered: later replies are written without this message"
    runtime = FakeRuntime()
    async with running(runtime, (120, 40)) as pilot:
        await say(pilot, "first")
        await wait_until(pilot, lambda: len(runtime.turns) == 1)
        assert words not in screen_text(pilot)
        await answered(pilot, runtime, 1, answer("", reason=FinishReason.ERROR, error=("lost", "")))
        await wait_until(pilot, lambda: words in screen_text(pilot))
        await talk(pilot, runtime, "next", answer("one"))
        assert contents(runtime) == ["next"]
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        assert screen_text(pilot).count(words) == 1
        lines = screen_text(pilot).splitlines()
        question = next(place for place, line in enumerate(lines) if line.strip().startswith("first"))
        assert lines[question + 1].strip().startswith(words)
        await pilot.press("alt+k", "alt+k", "alt+k", "alt+k", "f5")
        await wait_until(pilot, lambda: len(runtime.turns) == 3)
        assert contents(runtime) == ["first"]
        await wait_until(pilot, lambda: words not in screen_text(pilot))


async def test_an_edited_message_begins_a_branch() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await talk(pilot, runtime, "first", answer("one"))
        await talk(pilot, runtime, "second", answer("two"))
        await pilot.press("alt+k", "alt+k", "alt+k", "alt+k", "alt+e")
        prompt = chat_screen(pilot).pane.prompt
        await wait_until(pilot, lambda: prompt.text == "first")
        await wait_until(pilot, lambda: "Editing your message" in screen_text(pilot))
        await say(pilot, " again")
        await answered(pilot, runtime, 3, answer("three"))
        assert contents(runtime) == ["first again"]
        await wait_until(pilot, lambda: "three" in screen_text(pilot))
        await wait_until(pilot, lambda: "second" not in screen_text(pilot))
        await pilot.press("alt+v")
        await wait_until(pilot, lambda: "two" in screen_text(pilot))


async def test_escape_leaves_an_edit_and_a_selection() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await talk(pilot, runtime, "first", answer("one"))
        await pilot.press("alt+e", "escape")
        await wait_until(pilot, lambda: "Editing" not in screen_text(pilot))
        assert chat_screen(pilot).pane.prompt.text == ""
        await pilot.press("alt+k")
        await wait_until(pilot, lambda: "▸ Tiny-Test-1M" in screen_text(pilot))
        await pilot.press("escape")
        await wait_until(pilot, lambda: "▸" not in screen_text(pilot))
        await talk(pilot, runtime, "next", answer("two"))
        assert contents(runtime) == ["first", "one", "next"]


async def test_a_stopped_reply_is_gone_on_with() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        stopped = answer("one two", reason=FinishReason.CANCELLED)
        await talk(pilot, runtime, "count", stopped)
        await pilot.press("alt+a")
        await wait_until(pilot, lambda: len(runtime.turns) == 2)
        turn = runtime.turns[1]
        assert turn.continues
        assert turn.messages[-1] == Message(Role.ASSISTANT, "one two", (0, 1))
        runtime.say(TextArrived(ONE, " three"))
        await wait_until(pilot, lambda: "one two three" in screen_text(pilot))
        runtime.say(ReplyFinished(ONE, answer(" three four")))
        await wait_until(pilot, lambda: "one two three four" in screen_text(pilot))
        [_, reply] = chat_screen(pilot).pane.state.path
        assert (reply.text, reply.token_ids) == ("one two three four", (0, 1, 0, 1))
        await wait_until(pilot, lambda: "4 tokens" in screen_text(pilot))


async def test_sampling_and_system_prompt_belong_to_the_chat(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (120, 30), state=tmp_path) as pilot:
        await say(pilot, "/set temperature 0.2")
        await wait_until(pilot, lambda: "temperature: 0.2" in screen_text(pilot))
        await say(pilot, "/set temperature hot")
        await wait_until(pilot, lambda: "temperature must be a number from 0 to 100" in screen_text(pilot))
        await say(pilot, "/system Be brief")
        await say(pilot, "/set")
        await wait_until(
            pilot, lambda: "This chat sets system Be brief, temperature 0.2" in screen_text(pilot)
        )
        for name in ("top_p", "top_k", "repetition_penalty", "max_tokens", "seed", "overflow"):
            await wait_until(pilot, lambda name=name: name in screen_text(pilot))
        await talk(pilot, runtime, "question", answer("one"))
        assert runtime.turns[0].options == ChatOptions(system="Be brief", temperature=0.2)
    again = FakeRuntime()
    async with running(again, state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "question" in screen_text(pilot))
        await say(pilot, "next")
        await wait_until(pilot, lambda: again.turns)
        assert again.turns[0].options == ChatOptions(system="Be brief", temperature=0.2)


async def test_the_note_of_a_reply_is_shown() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (180, 30)) as pilot:  # wide enough for one line beside the panel
        from dataclasses import replace

        note = "4 old messages were left out of the prompt (812 tokens): the context holds 2,048 tokens"
        await talk(pilot, runtime, "question", replace(answer("one"), notes=(note,)))
        await wait_until(pilot, lambda: f"note: {note}" in screen_text(pilot))


async def test_what_cannot_be_done_is_said() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (120, 40)) as pilot:
        for command, words in (
            ("/retry", "There is no reply yet"),
            ("/continue", "There is no reply to go on with"),
            ("/copy", "There is nothing to copy yet"),
            ("/code", "There is no code block"),
            ("/version", "This chat has no other version"),
            ("/thoughts", "No thought is shown here"),
            ("/reopen", "No tab was closed"),
            ("/tab 7", "There is no chat 7; there are 1"),
            ("/export", "There is nothing to export yet"),
            ("/frobnicate", "There is no command /frobnicate"),
        ):
            await say(pilot, command)
            await wait_until(pilot, lambda words=words: words in screen_text(pilot))
            chat_screen(pilot).pane.prompt.clear_text()
        assert runtime.submitted == []
        await say(pilot, "question")
        await wait_until(pilot, lambda: runtime.submitted)
        await pilot.press("f5")
        await wait_until(pilot, lambda: "A reply is being written" in screen_text(pilot))
