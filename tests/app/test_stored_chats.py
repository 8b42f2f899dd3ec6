"""What was said is there after the end of the program, however it ended."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from textual.pilot import Pilot

from fleetchat.app.archive import Archive
from fleetchat.app.events import ChatNumber, ReplyFinished, TextArrived
from fleetchat.app.open_tabs import OpenTabs, read_open_tabs, write_open_tabs
from fleetchat.app.screens import desk
from fleetchat.chat.history import FILE_NAME, ChatId, open_history
from fleetchat.chat.tree import Node, Status
from fleetchat.errors import HistoryError
from tests.app.pilot import chat_screen, new_tab, running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ONE = ChatNumber(1)
AWKWARD = "a\u2028b\x0cc\r\nd\x00e\x1b]0;owned\x07 e\u0301 👩\u200d🚀 مرحبا नमस्ते 안녕하세요"


async def ask(pilot: Pilot[None], runtime: FakeRuntime, text: str) -> None:
    before = len(runtime.submitted)
    await type_text(pilot, text)
    await pilot.press("enter")
    await wait_until(pilot, lambda: len(runtime.submitted) == before + 1)


def stored_messages(folder: Path) -> list[Node]:
    with closing(open_history(folder / FILE_NAME)) as history:
        chats = [history.chat(summary.id) for summary in history.chats()]
        return [node for chat in chats if chat is not None for node in chat.tree]


async def test_the_message_is_stored_before_anything_is_generated(tmp_path: Path) -> None:
    class Looking(FakeRuntime):
        def submit(self, chat: ChatNumber, turn: object) -> None:
            self.seen = [(node.text, node.status) for node in stored_messages(tmp_path)]
            super().submit(chat, turn)  # type: ignore[arg-type]

    runtime = Looking()
    async with running(runtime, state=tmp_path, ready=False) as pilot:
        runtime.become_ready()
        await ask(pilot, runtime, "question")
        assert runtime.seen == [("question", Status.COMPLETE), ("", Status.WRITING)]


async def test_a_killed_run_leaves_question_and_text_and_the_next_sends_nothing(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await ask(pilot, runtime, "question")
        for piece in ("half ", "a reply"):
            runtime.say(TextArrived(ONE, piece))
        await wait_until(pilot, lambda: "half a reply" in screen_text(pilot))
        await wait_until(pilot, lambda: stored_messages(tmp_path)[-1].text == "half a reply")
    again = FakeRuntime()
    async with running(again, state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "half a reply" in screen_text(pilot))
        await wait_until(
            pilot, lambda: "interrupted: the program ended while this was written" in screen_text(pilot)
        )
        await wait_until(pilot, lambda: screen_text(pilot).splitlines()[1].strip() == "1 question  +")
        await pilot.pause()
        assert again.submitted == []
        await ask(pilot, again, "next")
        assert [message.content for message in again.turns[0].messages] == [
            "question",
            "half a reply",
            "next",
        ]


async def test_the_beginning_of_a_reply_is_saved_before_the_second_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "CHECKPOINT", 3600.0)
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await ask(pilot, runtime, "question")
        for written, piece in (("half ", "half "), ("half a reply", "a reply")):
            runtime.say(TextArrived(ONE, piece))
            await wait_until(pilot, lambda text=written: stored_messages(tmp_path)[-1].text == text)
        assert stored_messages(tmp_path)[-1].status is Status.WRITING


async def test_leaving_in_mid_reply_keeps_the_text(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await ask(pilot, runtime, "question")
        runtime.say(TextArrived(ONE, "half"))
        await wait_until(pilot, lambda: "half" in screen_text(pilot))
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not pilot.app.is_running)
    [_, reply] = stored_messages(tmp_path)
    assert (reply.text, reply.status) == ("half", Status.STOPPED)


async def test_tabs_titles_and_order_come_back(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        for text in ("alpha", "beta", "gamma"):
            await ask(pilot, runtime, text)
            runtime.say(ReplyFinished(chat_screen(pilot).tabs.active, answer(f"re {text}")))
            await wait_until(pilot, lambda text=text: f"re {text}" in screen_text(pilot))
            await new_tab(pilot)
        await pilot.press("ctrl+pagedown", "ctrl+pagedown")  # around: beta
        await wait_until(pilot, lambda: "re beta" in screen_text(pilot))
        chat_screen(pilot).rename(chat_screen(pilot).pane, "../x [/b] 👩\u200d🚀")
    async with running(FakeRuntime(), (100, 30), state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "re beta" in screen_text(pilot))
        line = screen_text(pilot).splitlines()[1].strip()
        assert line == "1 alpha  2 ../x [/b] 👩\u200d🚀  3 gamma  +"


def remembered_drafts(folder: Path) -> list[str]:
    return list(read_open_tabs(folder / "tabs.toml").drafts.values())


def drafts_shown(pilot: Pilot[None]) -> list[str]:
    screen = chat_screen(pilot)
    return [screen._panes[number].prompt.text for number in screen.tabs.numbers]


async def test_what_was_not_sent_comes_back_in_its_tab(tmp_path: Path) -> None:
    """A tab with a chat, an empty one that was typed in, an empty one: left by Ctrl+Q."""
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await ask(pilot, runtime, "question")
        runtime.say(ReplyFinished(ONE, answer("an answer")))
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)
        chat_screen(pilot).pane.prompt.set_text("first\n[/b] draft")
        await new_tab(pilot)
        chat_screen(pilot).pane.prompt.set_text("/second")
        await new_tab(pilot)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not pilot.app.is_running)
    again = FakeRuntime()
    async with running(again, state=tmp_path) as pilot:
        await wait_until(pilot, lambda: drafts_shown(pilot) == ["first\n[/b] draft", "/second"])
        assert again.submitted == []
        await pilot.press("alt+1")
        await wait_until(pilot, lambda: "an answer" in screen_text(pilot))
        await pilot.press("enter")
        await wait_until(pilot, lambda: again.submitted)
        assert again.turns[0].prompt == "first\n[/b] draft"
        await wait_until(pilot, lambda: remembered_drafts(tmp_path) == ["/second"])


async def test_what_is_typed_is_kept_a_moment_later_and_given_up_when_it_is_taken_back(
    tmp_path: Path,
) -> None:
    """Read from the file while the program runs: so a kill leaves it."""
    async with running(FakeRuntime(), state=tmp_path) as pilot:
        await type_text(pilot, "half a thought")
        await wait_until(pilot, lambda: remembered_drafts(tmp_path) == ["half a thought"])
        chat_screen(pilot).pane.prompt.clear_text()
        await wait_until(pilot, lambda: remembered_drafts(tmp_path) == [])


async def test_a_tab_that_is_reopened_has_its_text() -> None:
    async with running(FakeRuntime()) as pilot:
        screen = chat_screen(pilot)
        await new_tab(pilot)
        await type_text(pilot, "half a thought")
        await pilot.press("f8")
        await wait_until(pilot, lambda: drafts_shown(pilot) == [""])
        await pilot.press("alt+t")
        await wait_until(pilot, lambda: drafts_shown(pilot) == ["", "half a thought"])
        assert screen.pane.prompt.text == "half a thought"


async def test_the_store_has_exactly_what_the_model_wrote(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await ask(pilot, runtime, "question")
        for start in range(0, len(AWKWARD), 3):
            runtime.say(TextArrived(ONE, AWKWARD[start : start + 3]))
        runtime.say(ReplyFinished(ONE, answer(AWKWARD)))
        await wait_until(pilot, lambda: stored_messages(tmp_path)[-1].status is Status.COMPLETE)
    assert stored_messages(tmp_path)[-1].text == AWKWARD


async def test_prompts_are_remembered_from_run_to_run(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        for text in ("first", "second"):
            await ask(pilot, runtime, text)
            runtime.say(ReplyFinished(ONE, answer("done")))
            await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)
    async with running(FakeRuntime(), state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "done" in screen_text(pilot))
        prompt = chat_screen(pilot).pane.prompt
        await type_text(pilot, "draft")
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            seen.append(prompt.text)
        assert seen == ["second", "first", "first", "second", "draft", "draft"]


async def test_without_a_store_the_chat_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("no database" * 500, encoding="utf-8")
    runtime = FakeRuntime()
    async with running(runtime, (120, 30), state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "Chats are not saved" in screen_text(pilot))
        await ask(pilot, runtime, "question")
        runtime.say(ReplyFinished(ONE, answer("an answer")))
        await wait_until(pilot, lambda: "an answer" in screen_text(pilot))


async def test_a_job_on_a_broken_store_raises_one_kind_of_error(tmp_path: Path) -> None:
    archive = Archive(tmp_path / FILE_NAME)
    with pytest.raises(HistoryError, match="the chat store failed: integer division"):
        await archive.run(lambda _: 1 // 0)
    assert await archive.run(lambda history: history.chats()) == []
    assert archive.close(5)


async def test_open_tabs_survive_and_damage_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "tabs.toml"
    assert read_open_tabs(file) == OpenTabs()
    for drafts in ({}, {ChatId(5): f'{AWKWARD}\n"""\\ \ttext'}):
        tabs = OpenTabs((ChatId(5), ChatId(2**63 - 1)), ChatId(5), drafts)
        write_open_tabs(file, tabs)
        assert read_open_tabs(file) == tabs
    write_open_tabs(file, OpenTabs((ChatId(5),), None, {ChatId(5): "a\ud83db"}))
    assert read_open_tabs(file).drafts == {5: "a?b"}
    for damage in ("chats = 5", "= ", 'chats = ["x"]', "chats = [1]", "chats = []\ndrafts = 5"):
        file.write_text(damage, encoding="utf-8")
        assert read_open_tabs(file) == OpenTabs()
