"""What a failure does to the checks behind it, and how a check may fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleetchat.doctor.checklist import Checklist
from fleetchat.doctor.finding import Finding, Status, fail, ok, skipped
from fleetchat.errors import FleetchatError


def checklist(log: Callable[[BaseException], Path | None] = lambda error: None) -> Checklist:
    return Checklist(lambda name: None, lambda finding: None, log)


def raising(error: Exception) -> Callable[[], Finding]:
    def check() -> Finding:
        raise error

    return check


def test_a_check_whose_need_has_failed_is_skipped_and_the_next_goes_on() -> None:
    one = checklist()
    one.check("config", lambda: fail("config", "broken", "mend it"))
    one.check("recipe", raising(AssertionError()), needs=("config",))
    one.check("shards", raising(AssertionError()), needs=("recipe",))
    one.check("disk", lambda: ok("disk", "fine"))
    assert [finding.text for finding in one.findings] == [
        "broken",
        "not checked: config failed",
        "not checked: recipe was not checked",
        "fine",
    ]
    assert one.findings[2].status is Status.SKIPPED
    assert one.findings[3].milliseconds > 0


def test_a_skipped_need_is_told_after_a_failed_one() -> None:
    one = checklist()
    one.findings += [skipped("tokenizer", ""), fail("OpenVINO", "", "do")]
    one.check("chain", raising(AssertionError()), needs=("OpenVINO", "tokenizer"))
    assert one.findings[-1].text == "not checked: OpenVINO failed"


@pytest.mark.parametrize(
    ("error", "text", "remedy"),
    [
        (FleetchatError("wrong", hint="mend"), "wrong", "mend"),
        (FleetchatError("wrong"), "wrong", "correct the recipe's [source]"),
        (
            ModuleNotFoundError("No module named 'trio'", name="trio"),
            "the package trio is missing",
            "python -m pip install trio",
        ),
        (
            ZeroDivisionError("by zero"),
            "the check itself failed: ZeroDivisionError: by zero",
            "report it, this is a mistake of fleetchat; the details are in errors.log",
        ),
    ],
)
def test_a_check_that_raises_has_found_something(error: Exception, text: str, remedy: str) -> None:
    one = checklist(lambda caught: Path("errors.log"))
    one.check("shards", raising(error))
    (found,) = one.findings
    assert (found.status, found.text, found.remedy) == (Status.FAIL, text, remedy)


def test_every_check_is_announced_before_it_runs() -> None:
    told: list[str] = []
    one = checklist()
    one.begin = told.append
    one.report = lambda finding: told.append(finding.text)
    one.check("disk", lambda: ok("disk", "fine"))
    assert told == ["disk", "fine"]


def test_what_is_missing_is_told_before_what_was_not_checked() -> None:
    one = checklist()
    one.note(skipped("tokenizer", ""))
    one.check("chain", raising(AssertionError()), needs=("tokenizer",), missing="there are no shards")
    assert one.findings[-1].text == "not checked: there are no shards"
