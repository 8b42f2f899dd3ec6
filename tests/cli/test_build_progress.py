"""How progress is shown: the pace, the percentage, the failure."""

from __future__ import annotations

import io
import json

import pytest

from fleetchat.cli.build_progress import JsonLines, PlainLines, TerminalLine, percentage
from fleetchat.errors import CutRefused, FetchError, RecipeError


def test_percentages() -> None:
    assert percentage(0, 0) == ""
    assert percentage(5, 0) == ""
    assert percentage(0, 10) == ""
    assert percentage(5, 10) == " 50%"
    assert percentage(30, 10) == " 100%"


def test_plain_lines_name_each_step_once() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for step, done in (("a", 0), ("a", 1), ("b", 0), ("a", 2)):
        lines.step(step, done, 2)
    lines.finished("key")
    assert stream.getvalue() == "a\nb\na\n"


def test_progress_within_a_step_is_thinned_out() -> None:
    stream = io.StringIO()
    lines = JsonLines(stream)
    for done in range(1000):
        lines.step("a", done, 1000)
    lines.step("b", 0, 0)
    lines.finished("key")
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert found[0] == {"step": "a", "done": 0, "total": 1000}
    assert found[-2:] == [{"step": "b", "done": 0, "total": 0}, {"build_key": "key"}]
    assert len(found) < 100


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RecipeError("wrong", hint="do"), {"error": "wrong", "hint": "do", "exit": 2}),
        (CutRefused("no"), {"error": "no", "hint": "", "exit": 2, "refused": True}),
        (FetchError("no network"), {"error": "no network", "hint": "", "exit": 1}),
        (KeyboardInterrupt(), {"error": "interrupted", "hint": "", "exit": 130}),
        (ValueError("x"), {"error": "internal error: ValueError: x", "hint": "", "exit": 1}),
    ],
)
def test_the_failure_is_the_last_line(error: BaseException, said: dict[str, object]) -> None:
    stream = io.StringIO()
    JsonLines(stream).failed(error)
    assert json.loads(stream.getvalue()) == said


def test_a_narrow_terminal_is_not_overrun() -> None:
    stream = io.StringIO()
    line = TerminalLine(stream, 10)
    line.step("converting the model", 1, 2)
    line.finished("key")
    assert stream.getvalue() == "\rconvertin\x1b[K\r\x1b[K"


def test_a_build_that_is_interrupted_ends_on_a_line_of_its_own() -> None:
    stream = io.StringIO()
    line = TerminalLine(stream, 40)
    line.step("converting", 0, 0)
    line.failed(KeyboardInterrupt())
    assert stream.getvalue() == "\rconverting …\x1b[K\nstopped; nothing half-built stays\n"
    plain = io.StringIO()
    PlainLines(plain).failed(KeyboardInterrupt())
    assert plain.getvalue() == "stopped; nothing half-built stays\n"
    quiet = io.StringIO()
    PlainLines(quiet).failed(RecipeError("wrong"))
    assert quiet.getvalue() == ""
