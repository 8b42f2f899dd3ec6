"""Search, export, deletion, themes, help, palette, completion, editor, copying: on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from fleetchat.app.clipboard import copied_by, tools
from fleetchat.app.code_blocks import code_blocks
from fleetchat.app.editor import edited, editor_command
from fleetchat.app.events import ChatNumber, FleetReady, ReplyFinished
from fleetchat.app.screens.find_chat import FindChatScreen
from fleetchat.app.screens.help import HelpScreen
from fleetchat.app.screens.theme_picker import ThemePicker
from fleetchat.errors import FleetchatError
from tests.app.pilot import chat_screen, running, say, screen_text, type_text, wait_until
from tests.app.test_stored_chats import stored_messages
from tests.fakes.runtime import FakeRuntime, answer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

NASTY = "[/b] \x1b]0;owned\x07 lighthouse"


async def talk(pilot: Pilot[None], runtime: FakeRuntime, text: str, reply: str) -> None:
    before = len(runtime.turns)
    await say(pilot, text)
    await wait_until(pilot, lambda: len(runtime.turns) == before + 1)
    runtime.say(ReplyFinished(runtime.submitted[-1][0], answer(reply)))
    await wait_until(pilot, lambda: chat_screen(pilot).pane.state.writing is None)


async def test_a_stored_chat_is_found_by_its_words_and_opened() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        await talk(pilot, runtime, "alpha", NASTY)
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Type a message" in screen_text(pilot))
        await pilot.press("f3")
        await wait_until(pilot, lambda: "1 chat · Enter opens" in screen_text(pilot))
        await type_text(pilot, "LIGHTHOUSE")
        await wait_until(pilot, lambda: "[/b] ]0;owned lighthouse" in screen_text(pilot))
        await pilot.press("enter")
        await wait_until(pilot, lambda: not isinstance(pilot.app.screen, FindChatScreen))
        await wait_until(pilot, lambda: screen_text(pilot).splitlines()[1].strip() == "1 alpha  +")
        await say(pilot, "/find nowhere at all")
        await wait_until(pilot, lambda: "nothing found · Enter opens" in screen_text(pilot))
        await pilot.press("enter", "escape")
        await wait_until(pilot, lambda: not isinstance(pilot.app.screen, FindChatScreen))


async def test_a_stored_chat_is_found_by_its_name() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        await talk(pilot, runtime, "alpha", "one")
        chat_screen(pilot).rename(chat_screen(pilot).pane, "Tür 灯台")
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Type a message" in screen_text(pilot))
        for query in ("tur", "灯"):
            await pilot.press("f3")
            await wait_until(pilot, lambda: "1 chat · Enter opens" in screen_text(pilot))
            pilot.app.screen.query_one(Input).value = query
            await wait_until(pilot, lambda: "1 name · Enter opens" in screen_text(pilot))
            assert "2 messages" in screen_text(pilot)
            await pilot.press("escape")
            await wait_until(pilot, lambda: not isinstance(pilot.app.screen, FindChatScreen))
        await say(pilot, "/find TÜR")
        await wait_until(pilot, lambda: "1 name · Enter opens" in screen_text(pilot))
        await pilot.press("enter")
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.title == "Tür 灯台")


async def test_search_answers_to_the_mouse() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        await talk(pilot, runtime, "alpha", "one")
        await pilot.press("ctrl+n", "f3")
        await wait_until(pilot, lambda: "1 chat · Enter opens" in screen_text(pilot))
        await pilot.click("OptionList", offset=(4, 0))
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.title == "alpha")


async def test_a_chat_is_exported_and_never_over_another_file(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (120, 30)) as pilot:
        await talk(pilot, runtime, "alpha", "**one**")
        file = tmp_path / "chat.md"
        chat_screen(pilot).pane.prompt.set_text(f"/export {file}")
        await pilot.press("enter")
        await wait_until(pilot, file.exists)
        assert file.read_text(encoding="utf-8").startswith("# alpha\n")
        chat_screen(pilot).pane.prompt.set_text(f"/export {file}")
        await pilot.press("enter")
        await wait_until(
            pilot, lambda: "cannot be written: File exists" in " ".join(screen_text(pilot).split())
        )


@pytest.mark.parametrize(("key", "kept"), [("n", True), ("escape", True), ("enter", True), ("y", False)])
async def test_a_chat_is_deleted_only_by_a_yes(key: str, kept: bool, tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await talk(pilot, runtime, "alpha", "one")
        await say(pilot, "/delete")
        await wait_until(pilot, lambda: "Remove “alpha” for good" in screen_text(pilot))
        await pilot.press(key)
        await wait_until(pilot, lambda: "for good" not in screen_text(pilot))
        if not kept:
            await wait_until(pilot, lambda: "Type a message, Enter sends." in screen_text(pilot))
            await pilot.press("alt+t")
            await wait_until(pilot, lambda: "No tab was closed" in screen_text(pilot))
    assert bool(stored_messages(tmp_path)) is kept


async def test_a_theme_is_seen_while_it_is_pointed_at_and_remembered_when_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    async with running(FakeRuntime()) as pilot:
        before = pilot.app.theme
        await pilot.press("f4")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, ThemePicker))
        await pilot.press("home")
        await wait_until(pilot, lambda: pilot.app.theme != before)
        await pilot.press("escape")
        await wait_until(pilot, lambda: pilot.app.theme == before)
        await say(pilot, "/theme nord")
        await wait_until(pilot, lambda: pilot.app.theme == "nord")
        assert (tmp_path / "settings.toml").read_text(encoding="utf-8") == '[ui]\ntheme = "nord"\n'
        await say(pilot, "/theme none")
        await wait_until(pilot, lambda: "There is no theme 'none'" in screen_text(pilot))


async def test_help_lists_keys_and_commands() -> None:
    async with running(FakeRuntime(), (100, 60)) as pilot:
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        await pilot.pause()
        shown = screen_text(pilot)
        for words in ("Ctrl+N", "/rename", "F5, Alt+R", "Ctrl+Q", "Find and open stored chats"):
            assert words in shown
        await pilot.press("f1")
        await wait_until(pilot, lambda: not isinstance(pilot.app.screen, HelpScreen))


async def test_the_palette_has_every_command() -> None:
    async with running(FakeRuntime(), (100, 30)) as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause()
        await type_text(pilot, "rename")
        await wait_until(pilot, lambda: "Give this chat a name" in screen_text(pilot))
        await pilot.press("enter")
        await wait_until(pilot, lambda: "Name of this chat" in screen_text(pilot))
        assert pilot.app.screen.query_one(Input).has_focus


async def test_a_slash_command_is_completed_by_tab_enter_and_mouse() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        prompt = chat_screen(pilot).pane.prompt
        await type_text(pilot, "x")
        prompt.set_text("/ren")
        await wait_until(pilot, lambda: "Give this chat a name" in screen_text(pilot))
        await pilot.press("tab")
        await wait_until(pilot, lambda: prompt.text == "/rename ")
        await type_text(pilot, "Mine")
        await pilot.press("enter")
        await wait_until(pilot, lambda: chat_screen(pilot).pane.state.title == "Mine")
        assert prompt.text == ""
        prompt.set_text("/re")
        await wait_until(pilot, lambda: "Draw the reply anew" in screen_text(pilot))
        await pilot.press("down", "down", "down", "down", "down", "enter")
        await wait_until(pilot, lambda: prompt.text == "/retry")
        prompt.set_text("/re")
        await wait_until(pilot, lambda: "Open the tab that was closed" in screen_text(pilot))
        await pilot.click("Suggestions", offset=(3, 4))
        await wait_until(pilot, lambda: prompt.text == "/reopen")
        assert runtime.submitted == []


async def test_copying_says_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    runtime = FakeRuntime()
    async with running(runtime, (140, 30), state=tmp_path) as pilot:
        reply = "Look:\n```py\na = 1\n```\n1. x\n   ```\n   b\x1b[2J = 2\n   ```\n"
        await talk(pilot, runtime, "alpha", reply)
        await pilot.press("alt+o")
        await wait_until(pilot, lambda: "code block 2 of 2 to the terminal's clipboard" in screen_text(pilot))
        assert pilot.app.clipboard == "b[2J = 2\n"
        assert (tmp_path / "copied.txt").read_text(encoding="utf-8") == "b[2J = 2\n"
        await say(pilot, "/code 1")
        await wait_until(pilot, lambda: pilot.app.clipboard == "a = 1\n")
        await pilot.press("alt+c")
        await wait_until(pilot, lambda: pilot.app.clipboard.startswith("Look:"))
        await say(pilot, "/code 3")
        await wait_until(pilot, lambda: "The message has 2 code blocks" in screen_text(pilot))


async def test_the_clipboard_s_tool_is_the_system_s() -> None:
    assert tools("darwin", {}) == [("pbcopy",)]
    assert tools("win32", {}) == [("clip",)]
    assert [tool[0] for tool in tools("linux", {"DISPLAY": ":0", "WAYLAND_DISPLAY": "w"})] == [
        "wl-copy",
        "xclip",
        "xsel",
    ]
    assert tools("linux", {"DISPLAY": ":0", "SSH_CONNECTION": "x"}) == []
    asked: list[str] = []

    def run(command: object, content: bytes) -> bool:
        asked.append(command[0])  # type: ignore[index]
        return len(asked) == 2

    assert copied_by("é", {"DISPLAY": ":0"}, run) == "xsel"
    assert asked == ["xclip", "xsel"]
    assert copied_by("é", {}, run) is None


async def test_code_blocks_are_found_wherever_they_stand() -> None:
    assert code_blocks("```\na\n```\n> ```py\n> b\n> ```\n\n    c\n") == ["a\n", "b\n", "c\n"]
    assert code_blocks("no `code` block") == []


async def test_an_editor_changes_the_text(tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\nprintf "%s edited\\033\\n" "$(cat "$1")" > "$1"\n', encoding="utf-8")
    editor.chmod(0o755)
    assert edited("text", {"EDITOR": f"'{editor}'"}) == "text edited"
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    with pytest.raises(FleetchatError, match="ended with 1"):
        edited("text", {"EDITOR": "false"})
    with pytest.raises(FleetchatError, match="cannot be started"):
        edited("text", {"EDITOR": str(tmp_path / "none")})


async def test_a_click_selects_a_message() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await talk(pilot, runtime, "alpha", "one")
        await wait_until(pilot, lambda: "finished" in screen_text(pilot))
        await pilot.click("MessageView")
        await wait_until(pilot, lambda: "▸ You" in screen_text(pilot))
        await pilot.press("alt+c")
        await wait_until(pilot, lambda: pilot.app.clipboard == "alpha")
        assert chat_screen(pilot).pane.state.number == ChatNumber(1)


async def test_another_model_is_chosen_and_reads_the_chat_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        await talk(pilot, runtime, "alpha", "one")
        await say(pilot, "/model none")
        await wait_until(pilot, lambda: "none is not built; there are tiny, other" in screen_text(pilot))
        await say(pilot, "/model")
        await wait_until(pilot, lambda: "Other-2M (other)" in screen_text(pilot))
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: runtime.switched == ["other"])
        await wait_until(pilot, lambda: "Changing to Other-2M" in screen_text(pilot))
        assert (tmp_path / "settings.toml").read_text(encoding="utf-8") == '[model]\nrecipe = "other"\n'
        runtime.say(FleetReady("Other-2M", 2048))
        await talk(pilot, runtime, "beta", "two")
        assert [message.token_ids for message in runtime.turns[-1].messages] == [None, None, None]
        assert chat_screen(pilot).pane.state.path[1].model == "Tiny-Test-1M"


async def test_the_prompt_tells_how_much_of_the_context_is_taken() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        long_ago = answer("one", tokens=488)
        await say(pilot, "alpha")
        await wait_until(pilot, lambda: runtime.turns)
        runtime.say(ReplyFinished(ChatNumber(1), long_ago))
        await wait_until(pilot, lambda: "500 of 2,048 tokens" in screen_text(pilot))
        await type_text(pilot, "x" * 40)
        await wait_until(pilot, lambda: "about 510 of 2,048 tokens" in screen_text(pilot))
