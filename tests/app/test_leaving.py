"""Leaving takes two seconds at most, whatever hangs, and a terminal that is gone keeps nothing alive.

Here with fakes; tests/e2e/test_tui_tmux.py leaves real terminals in every way.
"""

from __future__ import annotations

import os
import pty
import threading
from pathlib import Path

import pytest
from textual.drivers._writer_thread import WriterThread

from fleetchat.app import app as application
from fleetchat.app.events import ChatNumber, TextArrived
from fleetchat.app.keeper import Keeper
from fleetchat.app.terminal_output import LastingFile
from fleetchat.chat.tree import Status
from fleetchat.errors import ExitCode
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.app.test_stored_chats import stored_messages
from tests.fakes.runtime import FakeRuntime


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_fleet_and_a_disk_that_hang_are_left_after_less_than_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    class Hanging(FakeRuntime):
        def shutdown(self, timeout: float) -> bool:
            waited.append(timeout)
            return False

    def hang(_: Keeper, timeout: float) -> bool:
        waited.append(timeout)
        return False

    monkeypatch.setattr(Keeper, "close", hang)
    runtime = Hanging()
    async with running(runtime) as pilot:
        runtime.become_ready()
        await type_text(pilot, "a")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not pilot.app.is_running)
    assert waited == [application.SHUTDOWN_TIMEOUT, application.SAVE_TIMEOUT]
    assert sum(waited) <= 1.8


@pytest.mark.slow
@pytest.mark.asyncio
async def test_without_its_terminal_the_program_leaves_and_keeps_the_text(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with running(runtime, state=tmp_path) as pilot:
        await type_text(pilot, "a")
        await pilot.press("enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(ChatNumber(1), "half"))
        await wait_until(pilot, lambda: "half" in screen_text(pilot))
        app = chat_screen(pilot).app
        assert isinstance(app, application.FleetchatApp)
        threading.Thread(target=app.terminal_is_lost).start()
        await wait_until(pilot, lambda: runtime.shut_down and not app.is_running)
        assert app.return_code == ExitCode.INTERRUPTED
    assert [(node.text, node.status) for node in stored_messages(tmp_path)][1:] == [("half", Status.STOPPED)]


def test_writing_to_a_terminal_that_is_gone_blocks_nobody() -> None:
    ours, theirs = pty.openpty()
    lost: list[int] = []
    terminal = os.fdopen(theirs, "w")
    file = LastingFile(terminal, lambda: lost.append(1))
    assert file.write("seen") == 4
    file.flush()
    assert os.read(ours, 100) == b"seen"
    os.close(ours)
    writer = WriterThread(file)  # type: ignore[arg-type]
    writer.start()
    for _ in range(200):  # it queues thirty
        writer.write("x")
    writer.stop()
    assert lost == [1]
    assert file.fileno() == theirs
    with pytest.raises(OSError, match="Input/output error"):
        terminal.close()
    file.write("dropped")
    assert lost == [1]
