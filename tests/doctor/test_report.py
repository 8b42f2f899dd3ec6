from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleetchat.doctor.finding import fail, ok, skipped, warn
from fleetchat.doctor.report import document, failed, lines, summary

PATH = "/a/long/path/" + "x" * 60 + "/stage_0.bin"
BROKEN = replace(
    fail("shards", f"{PATH} was changed: its hash differs", "fleetchat shards build tiny --stages 2", "a b"),
    milliseconds=412.3,
)


def test_a_pipe_gets_one_line_for_each_text() -> None:
    assert lines(BROKEN, None) == [
        f"fail     412 ms  shards     {PATH} was changed: its hash differs",
        "                            a b",
        "         to do: fleetchat shards build tiny --stages 2",
    ]


def test_a_terminal_gets_whole_words_below_each_other() -> None:
    found = lines(replace(BROKEN, text="the hash of a file is not what it was when it was built"), 80)
    assert found == [
        "fail     412 ms  shards     the hash of a file is not what it was when it was",
        "                            built",
        "                            a b",
        "         to do: fleetchat shards build tiny --stages 2",
    ]
    assert all(len(line) <= 80 for line in found)


@pytest.mark.parametrize("columns", [1, 20, 40, 58, 80, 200])
def test_a_path_is_never_cut(columns: int) -> None:
    assert any(PATH in line for line in lines(BROKEN, columns))


def test_what_was_skipped_has_no_time() -> None:
    assert lines(skipped("chain", "not checked: shards failed"), None) == [
        "skipped          chain      not checked: shards failed"
    ]


def test_the_summary() -> None:
    good, odd = ok("a", ""), warn("b", "", "do")
    assert summary([good, good], 6100) == "fleetchat works here: 2 ok, in 6.1 s"
    assert summary([good, odd, skipped("c", "")], 999) == (
        "nothing failed: 1 warning, 1 ok, 1 skipped, in 999 ms"
    )
    assert summary([odd, BROKEN, fail("d", "", "")], 1000) == (
        "2 failures, 1 warning, 0 ok, in 1.0 s; begin with: shards"
    )
    assert failed([good, BROKEN])
    assert not failed([good, odd, skipped("c", "")])


def test_the_document_of_a_program() -> None:
    said = json.loads(document([BROKEN, ok("a", "é")], 1234.5))
    assert said["findings"][0] == {
        "name": "shards",
        "status": "fail",
        "text": BROKEN.text,
        "remedy": BROKEN.remedy,
        "details": ["a b"],
        "milliseconds": 412.3,
    }
    assert said["findings"][1]["text"] == "é"
    assert said["count"] == {"ok": 1, "warn": 0, "fail": 1, "skipped": 0}
    assert said["milliseconds"] == 1234.5
