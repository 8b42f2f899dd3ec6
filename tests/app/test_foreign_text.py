"""No text of a model, a user or a peer acts as markup or reaches the terminal as control characters."""

from __future__ import annotations

import pytest
from textual import events as textual_events
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from fleetchat.app.events import (
    BuildProgressed,
    ChatNumber,
    FleetReady,
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
from tests.app.pilot import running, screen_text, wait_until
from tests.fakes.runtime import CONTEXT, FakeRuntime, answer, snapshot, stage

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FIRST = ChatNumber(1)
NASTY = "[/b] [bold]x[/bold] \x1b]0;owned\x07 \x1b[2J \x9b31m [@click=app.quit]q[/] $primary"
HARMLESS = "[/b] [bold]x[/bold] ]0;owned [2J 31m [@click=app.quit]q[/] $primary"
LINES = "alpha\u2028beta\x85gamma\x0cdelta\r\nepsilon"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that goes to the terminal."""
    output: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "write", lambda _driver, text: output.append(text))
    return output


def assert_harmless(written: list[str]) -> None:
    for text in written:
        assert "\x1b]0;" not in text
        assert "owned\x07" not in text
        assert "\x1b[2J \x9b" not in text
        assert "\x9b" not in text


async def paste(pilot: Pilot[None], text: str) -> None:
    app: App[None] = pilot.app
    app.post_message(textual_events.Paste(text))
    await pilot.pause()


async def test_pasted_text_is_shown_and_sent_as_it_reads(written: list[str]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (110, 40)) as pilot:
        await paste(pilot, NASTY)
        assert pilot.app.query_one(Prompt).text == HARMLESS
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        assert runtime.submitted == [(FIRST, HARMLESS)]
        await wait_until(pilot, lambda: f"    {HARMLESS}" in screen_text(pilot))
    assert_harmless(written)


async def test_pasted_line_separators_are_newlines() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await paste(pilot, LINES)
        assert pilot.app.query_one(Prompt).text == "alpha\nbeta\ngamma\ndelta\nepsilon"


async def test_a_reply_cannot_act(written: list[str]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (110, 40)) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(FIRST, NASTY))
        await wait_until(pilot, lambda: HARMLESS in screen_text(pilot))
        runtime.say(ReplyFinished(FIRST, answer(NASTY)))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await wait_until(pilot, lambda: "]0;owned [2J 31m" in screen_text(pilot))
    assert_harmless(written)


async def test_line_separators_in_a_reply_neither_double_nor_lose_text() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (110, 40)) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        for piece in ("alpha\u2028beta\x85", "gamma\x0cdelta\r", "\nepsilon"):
            runtime.say(TextArrived(FIRST, piece))
        await wait_until(pilot, lambda: "epsilon" in screen_text(pilot))
        assert pilot.app.query_one(ReplyView).text == "alpha\nbeta\ngamma\ndelta\nepsilon"
        runtime.say(ReplyFinished(FIRST, answer(LINES)))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        shown = screen_text(pilot)
        assert [shown.count(word) for word in ("alpha", "beta", "gamma", "delta", "epsilon")] == [1] * 5


@pytest.mark.parametrize(
    "text",
    [
        "```[/b] x\ncode\n```",
        "```python\n" + "x = '[/b]'\n" * 50 + "```",
        "[link]([/b])\n\n[/b]: x\n\n![i](\x1b]0;owned\x07)",
        "| [/b] | b |\n|---|---|\n| [bold] | \x1b[2J |",
        "<b onclick='[/b]'>x</b>\n\n&#27;]0;owned&#7;",
        "# [/red]\n\n> [/b]\n\n1. [/b]\n\n* * *\n\n~~~\n[/b]",
        "\x00\ud83d[/]",
    ],
)
async def test_markdown_of_a_reply_cannot_act(text: str, written: list[str]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (110, 40)) as pilot:
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(FIRST, text), ReplyFinished(FIRST, answer(text)))
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
    assert_harmless(written)


async def test_names_and_errors_of_others_cannot_act(written: list[str]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (110, 40), ready=False) as pilot:
        runtime.say(BuildProgressed(NASTY, 1, 2))
        await wait_until(pilot, lambda: f"Shards: {HARMLESS}" in screen_text(pilot))
        runtime.say(StartProgressed(NASTY))
        await wait_until(pilot, lambda: f"{HARMLESS} …" in screen_text(pilot))
        runtime.say(FleetReady(NASTY, CONTEXT))
        await wait_until(pilot, lambda: f"fleetchat · {HARMLESS}" in screen_text(pilot))
        await wait_until(pilot, lambda: f"Chat with {HARMLESS}." in screen_text(pilot))
        troubled = stage(0, address=NASTY, state=StageState.STALLED, detail=NASTY)
        runtime.say(SnapshotTaken(snapshot(troubled, stage(1))))
        await wait_until(pilot, lambda: f"Stage 0 at {HARMLESS} is stalled" in screen_text(pilot))
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        failed = answer("", reason=FinishReason.ERROR, error=(NASTY, NASTY))
        runtime.say(ReplyFinished(FIRST, failed))
        await wait_until(pilot, lambda: f"failed: {HARMLESS}" in screen_text(pilot))
        runtime.say(RuntimeFailed(NASTY, NASTY))
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FailureScreen))
        await wait_until(pilot, lambda: "[/b] [bold]x[/bold] ]0;owned [2J 31m" in screen_text(pilot))
    assert_harmless(written)
