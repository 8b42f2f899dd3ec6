"""`fleetchat chats` on a store of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetchat.chat.history import FILE_NAME, ChatId, open_history
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import MessageId, Node
from fleetchat.cli.main import main

ONE, TWO = ChatId(0x0123456789ABCDEF), ChatId(0x0123999999999999)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path))
    history = open_history(tmp_path / FILE_NAME)
    history.add_chat(ONE, "Light\x1b[2J house", 100.0, ChatOptions())
    history.put(ONE, Node(MessageId(1), None, Role.USER, "Tell me of a\x1b]0;x\x07 lighthouse", 100.0))
    history.set_head(ONE, MessageId(1))
    history.add_chat(TWO, "Second", 50.0, ChatOptions())
    history.close()


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main(["chats", *arguments]) == code
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    return captured.out, captured.err


def test_chats_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "list")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["01234567", "01239999"]
    assert lines[0].endswith("1  Light[2J house")
    listed = json.loads(output(capsys, "list", "--json")[0])
    assert [(chat["chat"], chat["messages"]) for chat in listed] == [(f"{ONE:016x}", 1), (f"{TWO:016x}", 0)]


def test_search_marks_the_hit(capsys: pytest.CaptureFixture[str]) -> None:
    assert "user: Tell me of a]0;x [light]house" in output(capsys, "search", "LIGHT".lower())[0]
    assert output(capsys, "search", "nowhere") == ("", "nothing was found\n")
    [hit] = json.loads(output(capsys, "search", "lighthouse", "--json")[0])
    assert (hit["chat"], hit["hit"]) == (f"{ONE:016x}", "lighthouse")


def test_a_name_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "search", "cond")[0] == "01239999  Second\n    name: Se[cond]\n"
    [hit] = json.loads(output(capsys, "search", "SECOND", "--json")[0])
    assert (hit["title"], hit["role"], hit["hit"]) == ("Second", None, "Second")


def test_export_and_import_go_round(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert output(capsys, "export", "01234")[0].startswith("# Light[2J house\n")
    file = tmp_path / "all.json"
    output(capsys, "export", "--json", "--output", str(file))
    assert output(capsys, "import", str(file)) == ("", "2 imported\n")
    assert len(output(capsys, "list")[0].splitlines()) == 4
    assert len(output(capsys, "search", "lighthouse")[0].splitlines()) == 4


def test_chats_are_removed_by_the_beginning_of_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2 chats begin with '0123'" in output(capsys, "rm", "0123", code=2)[1]
    assert "there is no chat 'ff'" in output(capsys, "rm", "ff", code=2)[1]
    output(capsys, "rm", "01234")
    assert len(output(capsys, "list")[0].splitlines()) == 1
    output(capsys, "rm", "01239")
    assert output(capsys, "list") == ("", "no chat is stored yet\n")


def test_files_that_cannot_be_used_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = output(capsys, "import", str(tmp_path / "none"), code=2)[1]
    assert said == f"error: {tmp_path / 'none'} cannot be read: No such file or directory\n"
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert (
        "latin is not UTF-8 text: byte 3 is wrong"
        in output(capsys, "import", str(tmp_path / "latin"), code=2)[1]
    )
    assert "cannot be written" in output(capsys, "export", "--output", str(tmp_path), code=2)[1]
