from __future__ import annotations

import io
import os
import threading

import pytest
import trio

from fleetchat.chat.sanitise import sanitise
from fleetchat.cli.ask_output import AnswerWriter, LineProgress, TerminalProgress, write_stdout


@pytest.mark.trio
async def test_text_is_written_in_order_and_every_answer_ends_its_line() -> None:
    written: list[str] = []
    writer = AnswerWriter(written.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for text in ("Par", "", "is."):
            writer.put(text)
            await trio.lowlevel.checkpoint()
        writer.end_answer()
        await writer.flush()
        assert "".join(written) == "Paris.\n"
        writer.separate()
        writer.put("Rome.\n")
        writer.end_answer()
        await writer.close()
    assert "".join(written) == "Paris.\n\n---\n\nRome.\n"


@pytest.mark.trio
async def test_an_empty_answer_writes_nothing() -> None:
    written: list[str] = []
    writer = AnswerWriter(written.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.end_answer()
        await writer.close()
    assert written == []


@pytest.mark.trio
async def test_a_slow_reader_holds_up_nothing_else() -> None:
    release, written = threading.Event(), []

    def blocked(text: str) -> None:
        release.wait()
        written.append(text)

    writer = AnswerWriter(blocked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for text in "abc":
            writer.put(text)
            await trio.testing.wait_all_tasks_blocked()
        release.set()
        await writer.close()
    assert written == ["a", "bc"]


@pytest.mark.trio
async def test_a_reader_that_has_gone_ends_it() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError

    writer = AnswerWriter(broken)
    with pytest.RaisesGroup(BrokenPipeError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            writer.put("a")
            await writer.close()


def test_stdout_gets_utf_8(capfd: pytest.CaptureFixture[str]) -> None:
    write_stdout("Zürich ☕\n")
    assert capfd.readouterr().out == "Zürich ☕\n"


def test_stdout_that_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    write_stdout("Zürich\n")
    assert stream.getvalue() == "Zürich\n"


def test_a_pipe_that_does_not_block_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    received: list[bytes] = []

    def read_all() -> None:
        while chunk := os.read(reading, 1 << 16):
            received.append(chunk)

    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        reader = threading.Thread(target=read_all)
        reader.start()
        write_stdout("é" * 200_000)
    reader.join()
    os.close(reading)
    assert b"".join(received).decode() == "é" * 200_000


def test_a_pipe_gets_a_plain_line_a_step() -> None:
    lines: list[str] = []
    progress = LineProgress(lines.append)
    for done in range(3):
        progress.step("fetching", done, 3)
    progress.passing("starting a peer")
    progress.step("cutting")
    progress.clear()
    progress.say("the answer was cut")
    assert lines == ["fetching", "cutting", "the answer was cut"]


def test_a_pipe_does_not_hear_of_a_single_step() -> None:
    lines: list[str] = []
    progress = LineProgress(lines.append)
    progress.step("checking the stored shards")
    progress.say("the answer was cut")
    assert lines == ["the answer was cut"]


def test_a_terminal_has_one_line_that_is_written_over() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(stream, lambda: 24, sanitise)
    progress.step("fetching", 1, 4)
    assert stream.getvalue() == "\rfetching  25 %"
    progress.step("cutting")
    assert stream.getvalue().endswith("\rcutting …     ")
    progress.clear()
    assert stream.getvalue().endswith("\r" + " " * 9 + "\r")
    progress.clear()
    assert stream.getvalue().endswith("\r" + " " * 9 + "\r")
    progress.passing("a line that is\nmuch too long \x1b[2J for it")
    assert stream.getvalue().endswith("\ra line that is much too")
    progress.say("done\x07")
    assert stream.getvalue().endswith("\r" + " " * 23 + "\rdone\n")
    progress.stop("it ends")
    assert stream.getvalue().endswith("\rdone\nit ends\n")
    progress.step("cutting")
    progress.stop("it ends")
    assert stream.getvalue().endswith("\rcutting …\nit ends\n"), "the line stays, with the ^C behind it"
