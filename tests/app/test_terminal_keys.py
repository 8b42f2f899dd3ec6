"""Keys as the bytes that a terminal without Kitty's protocol sends: each does its work, none is typed."""

from __future__ import annotations

import pytest
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from fleetchat.app.commands import COMMANDS
from fleetchat.app.screens.chat import ChatScreen
from tests.app.pilot import chat_screen, running, wait_until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FUNCTION_KEYS = dict(
    zip(range(1, 10), ("OP", "OQ", "OR", "OS", "[15~", "[17~", "[18~", "[19~", "[20~"), strict=True)
)
NAMED = {"escape": "\x1b", "ctrl+pageup": "\x1b[5;5~", "ctrl+pagedown": "\x1b[6;5~"}
OF_THE_PROMPT = {"end"}  # takes its own way: from the end of the text on to the newest text


def sent_for(key: str) -> str:
    """What a terminal sends."""
    modifier, _, last = key.rpartition("+")
    if key in NAMED:
        return NAMED[key]
    if modifier == "alt":
        return f"\x1b{last}"
    if modifier == "ctrl":
        return chr(ord(last) - ord("a") + 1)
    return f"\x1b{FUNCTION_KEYS[int(key.removeprefix('f'))]}"


def keys_read(sent: str) -> list[Key]:
    """The keys that Textual reads from these bytes once no more come."""
    parser = XTermParser()
    found = [*parser.feed(sent), *parser.feed("")]
    return [event for event in found if isinstance(event, Key)]


async def press(pilot: Pilot[None], sent: str) -> None:
    for key in keys_read(sent):
        pilot.app.post_message(key)
    await pilot.pause()


BOUND = [
    (key, command.id)
    for command in COMMANDS
    for key in command.keys.split(",")
    if key and key not in OF_THE_PROMPT
]


async def test_every_key_of_every_command_arrives_and_types_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[str] = []
    monkeypatch.setattr(ChatScreen, "action_command", lambda _, command: wanted.append(command))
    async with running(FakeRuntime()) as pilot:
        for key, command in BOUND:
            wanted.clear()
            await press(pilot, sent_for(key))
            await wait_until(pilot, lambda: wanted)
            assert wanted == [command], key
        assert chat_screen(pilot).pane.prompt.text == ""


async def test_alt_and_a_letter_is_not_typed_into_a_field_either() -> None:
    async with running(FakeRuntime()) as pilot:
        await press(pilot, sent_for("f2"))
        await wait_until(pilot, lambda: pilot.app.screen.query(Input))
        for sent in ("\x1bk", "\x1b7", "\x1bT", "a"):
            await press(pilot, sent)
        await wait_until(pilot, lambda: pilot.app.screen.query_one(Input).value == "a")


@pytest.mark.parametrize("sent", ["\n", "\x1b\r", "\x1b[13;2u", "\x1b[13;3u"])
async def test_newline_keys_do_not_send(sent: str) -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await press(pilot, "a")
        await press(pilot, sent)
        await press(pilot, "¡")
        await wait_until(pilot, lambda: chat_screen(pilot).pane.prompt.text == "a\n¡")
        await press(pilot, "\r")
        await wait_until(pilot, lambda: [text for _, text in runtime.submitted] == ["a\n¡"])
