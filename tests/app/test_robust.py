"""The hard days of a chat: resizes under load, many tabs in disorder, odd text in odd pieces, long chats."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static

from fleetchat.app.blocks import LIST_ITEMS, Block
from fleetchat.app.events import ChatNumber, ReplyFinished, TextArrived
from fleetchat.app.widgets.flat_list import ListText
from fleetchat.app.widgets.reply_text import ReplyText
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.app.widgets.transcript import WINDOW
from fleetchat.chat.history import FILE_NAME, ChatId, open_history
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import MessageId, Node
from tests.app.pilot import chat_screen, new_tab, running, screen_text, type_text, wait_until
from tests.app.test_stored_chats import stored_messages
from tests.fakes.runtime import FakeRuntime, answer

RESIZES = 200  # of 20x5 to 200x60; each costs Textual about 0.1 s

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ITEMS = "".join(f"- item {number}\n" for number in range(30))
REPLY = f"# Title\n\nSome *words*.\n\n{ITEMS}\n```py\nx\n```\n"
ODD = [
    *(
        "# ",
        "- a\r",
        "\n",
        "- b\u2028",
        "\x0c",
        "e\u0301",
        "👩\u200d",
        "🚀",
        "مرحبا ",
        "नमस्ते",
        "안녕",
        "\x00",
    ),
    *(
        "\x1b]0;x\x07",
        "```",
        "\n",
        "| a |",
        "\n|--",
        "-|\n",
        "[x]",
        "(y)",
        "\x85",
        "> ",
        "\n\n",
        "1. ",
        "<b>",
        "\\",
    ),
]


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_rendered_is_the_sanitised_text_whatever_the_pieces(seed: int) -> None:
    dice = random.Random(seed)
    pieces = [dice.choice(ODD) for _ in range(80)]
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await type_text(pilot, "a")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        text = "x" + "".join(pieces) + "end"  # the first letter keeps it from being nothing but blanks
        place = 0
        while place < len(text):
            size = dice.randint(1, 9)
            runtime.say(TextArrived(ChatNumber(1), text[place : place + size]))
            place += size
        view = pilot.app.query_one(ReplyView)
        await wait_until(pilot, lambda: view.text == sanitise(text))
        runtime.say(ReplyFinished(ChatNumber(1), answer(text)))
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)
        assert view.text == sanitise(text)
        assert chat_screen(pilot).pane.state.path[-1].text == text


async def test_resizes_while_three_tabs_stream() -> None:
    dice = random.Random(8)
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        for number in range(3):
            if number:
                await new_tab(pilot)
            await type_text(pilot, "go")
            await pilot.press("enter")
            await wait_until(pilot, lambda number=number: len(runtime.submitted) == number + 1)
        chats = [chat for chat, _ in runtime.submitted]
        for step in range(RESIZES):
            for chat in chats:
                runtime.say(TextArrived(chat, REPLY[step : step + 1]))
            if step % 20 == 0:
                await pilot.press("ctrl+pagedown")
            await pilot.resize_terminal(dice.randint(20, 200), dice.randint(5, 60))
        for chat in chats:
            runtime.say(ReplyFinished(chat, answer(REPLY)))
        await pilot.resize_terminal(100, 30)
        for chat in chats:
            await wait_until(pilot, lambda chat=chat: chat_screen(pilot)._panes[chat].state.writing is None)
            assert chat_screen(pilot)._panes[chat].state.path[-1].text == REPLY
        await wait_until(pilot, lambda: "item 29" in screen_text(pilot))


async def test_thirty_tabs_in_disorder_lose_nothing(tmp_path: Path) -> None:
    dice = random.Random(30)
    names = ["👩\u200d🚀", "../x", "[/b]", "\x1b]0;x\x07", "", "안녕하세요", "a" * 200, "con", ". ."]
    runtime = FakeRuntime()
    async with running(runtime, (80, 24), state=tmp_path) as pilot:
        screen = chat_screen(pilot)
        for number in range(30):
            if number:
                await new_tab(pilot)
            screen.rename(screen.pane, dice.choice(names))
            if number % 3 == 0:
                await type_text(pilot, f"q{number}")
                await pilot.press("enter")
                await wait_until(
                    pilot, lambda text=f"q{number}": any(text == t for _, t in runtime.submitted)
                )
        busy = [chat for chat, _ in runtime.submitted]
        assert len(busy) == 10
        for chat in busy[:5]:
            runtime.say(TextArrived(chat, f"part {chat}"))
        await wait_until(pilot, lambda: screen._panes[busy[4]].state.path[-1].text == f"part {busy[4]}")
        closing_order = list(screen.tabs.numbers)
        dice.shuffle(closing_order)
        for chat in closing_order:
            await screen.close_chat(chat)
        await wait_until(pilot, lambda: set(busy) <= set(runtime.closed))
        assert len(screen.tabs.numbers) == 1
        for chat in busy:
            runtime.say(TextArrived(chat, "late"), ReplyFinished(chat, answer("late")))
        await new_tab(pilot)
    texts = {node.text for node in stored_messages(tmp_path)}
    assert {f"q{number}" for number in range(0, 30, 3)} <= texts
    assert {f"part {chat}" for chat in busy[:5]} <= texts
    assert "late" not in texts


def write_long_chat(folder: Path, messages: int) -> None:
    with closing(open_history(folder / FILE_NAME)) as history:
        history.add_chat(ChatId(1), "Long", 1.0, ChatOptions())
        for number in range(1, messages + 1):
            role = Role.USER if number % 2 else Role.ASSISTANT
            text = f"message {number}\n\n- one\n- **two**\n\n```py\nx = {number}\n```\n"
            parent = MessageId(number - 1) if number > 1 else None
            history.put(ChatId(1), Node(MessageId(number), parent, role, text, float(number), model="Tiny"))
        history.set_head(ChatId(1), MessageId(messages))
    (folder / "tabs.toml").write_text('chats = ["1"]\nactive = "1"\n', encoding="utf-8")


async def test_a_chat_of_five_hundred_messages_opens_at_once_and_can_be_read_to_its_beginning(
    tmp_path: Path,
) -> None:
    write_long_chat(tmp_path, 500)
    async with running(FakeRuntime(), (80, 24), ready=False, state=tmp_path) as pilot:
        await wait_until(pilot, lambda: "x = 500" in screen_text(pilot))
        transcript = chat_screen(pilot).pane.transcript
        assert len(transcript.views) == WINDOW  # however long the chat; `measure_screen` has the time
        for _ in range(40):
            await pilot.press("pageup")
        await wait_until(pilot, lambda: len(transcript.views) >= 72)
        assert not transcript.following


async def test_long_lists_code_and_tables_stream_without_holding_up_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts the work; `tests.app.measure_screen` measures the time that keys take meanwhile."""
    rendered: list[str] = []
    laid_out: list[int] = []
    render, update = ReplyText._render_block, Static.update

    async def counted_render(self: ReplyText, block: Block, source: str) -> None:
        rendered.append(source)
        await render(self, block, source)

    def counted_update(self: Static, content: Any = "", *, layout: bool = True) -> None:
        if "tail" in self.classes:
            laid_out.append(len(content))
        update(self, content, layout=layout)

    monkeypatch.setattr(ReplyText, "_render_block", counted_render)
    monkeypatch.setattr(Static, "update", counted_update)
    runtime = FakeRuntime()
    items = "".join(f"{number}. item *{number}*\n" for number in range(1, 201))
    code = "```py\n" + "".join(f"line_{number} = {number}\n" for number in range(300)) + "```\n"
    table = "| a | b |\n|---|---|\n" + "".join(f"| {number} | x |\n" for number in range(200))
    text = f"{items}\n{code}\n{table}"
    async with running(runtime) as pilot:
        await type_text(pilot, "a")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        for start in range(0, len(text), 400):
            runtime.say(TextArrived(ChatNumber(1), text[start : start + 400]))
            await pilot.press("x")
        runtime.say(ReplyFinished(ChatNumber(1), answer(text)))
        view = pilot.app.query_one(ReplyView)
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        assert view.text == text
        typed = chat_screen(pilot).pane.prompt.text
        list_widgets = len(pilot.app.query(ListText))
    pieces = -(-len(text) // 400)
    assert typed == "x" * pieces
    assert "".join(rendered) == text  # every block is rendered once: the work grows as the text does
    assert list_widgets == 200 // LIST_ITEMS
    assert len(laid_out) == pieces  # and what grows is laid out once a piece,
    assert max(laid_out) <= max(map(len, rendered))  # no longer than one block
