"""Python, packages, terminal, locale: decided from values."""

from __future__ import annotations

import pytest

from fleetchat.doctor.encoding import check_encoding
from fleetchat.doctor.finding import Status
from fleetchat.doctor.interpreter import check_interpreter
from fleetchat.doctor.packages import check_packages, required
from fleetchat.doctor.terminal import check_terminal, terminal_size

XTERM = {"TERM": "xterm-256color"}


def test_an_old_or_a_32_bit_python_is_told() -> None:
    assert check_interpreter().status is Status.OK
    old = check_interpreter((3, 10))
    assert old.status is Status.FAIL
    assert old.remedy == "install a 64-bit Python 3.11 or newer, and fleetchat in it"
    assert check_interpreter((3, 12), 2**31 - 1).status is Status.FAIL


def test_this_checkout_has_what_it_requires() -> None:
    found = check_packages(required())
    assert found.status is Status.OK, found.text
    assert any(text.startswith("packaging") for text in required())


def test_missing_and_wrong_packages_are_named_with_the_command() -> None:
    versions = {"trio": "0.20", "openvino": "2026.4.1"}
    requirements = ["trio>=0.31", "openvino==2026.4.1", "gguf>=0.19,<0.20", 'nncf>=3; extra == "export"']
    found = check_packages(requirements, versions.get)
    assert found.status is Status.FAIL
    assert found.text == "gguf is missing; trio 0.20 is not >=0.31"
    assert found.remedy == 'python -m pip install "gguf<0.20,>=0.19" "trio>=0.31"'


def test_requirements_that_nobody_knows_are_a_warning() -> None:
    assert check_packages([]).status is Status.WARN


@pytest.mark.parametrize(
    ("size", "environment", "status", "said"),
    [
        ((80, 24), XTERM, Status.OK, "80x24 characters, 256 colours"),
        ((60, 16), XTERM, Status.OK, "60x16"),
        ((59, 16), XTERM, Status.WARN, "too small, the chat wants at least 60x16"),
        ((60, 15), XTERM, Status.WARN, "too small"),
        ((80, 24), {"TERM": "dumb"}, Status.WARN, "TERM=dumb: no screen can be drawn"),
        ((80, 24), {}, Status.WARN, "TERM is not set"),
        ((80, 24), {**XTERM, "COLORTERM": "truecolor"}, Status.OK, "24-bit colours"),
        ((80, 24), {**XTERM, "NO_COLOR": "1"}, Status.OK, "no colours (NO_COLOR is set)"),
        (None, XTERM, Status.SKIPPED, "no terminal"),
    ],
)
def test_terminals(
    size: tuple[int, int] | None, environment: dict[str, str], status: Status, said: str
) -> None:
    found = check_terminal(size, environment, windows=False)
    assert found.status is status
    assert said in found.text
    assert bool(found.remedy) is (status is Status.WARN)


def test_windows_needs_no_term() -> None:
    assert check_terminal((80, 24), {}, windows=True).status is Status.OK


def test_the_environment_says_the_size_before_the_terminal() -> None:
    assert terminal_size({"COLUMNS": "50", "LINES": "9"}) == (50, 9)


@pytest.mark.parametrize(
    ("encoding", "environment", "platform", "status", "said"),
    [
        ("UTF-8", {"LANG": "de_CH.UTF-8"}, "linux", Status.OK, "UTF-8 (LANG=de_CH.UTF-8)"),
        ("utf8", {}, "linux", Status.OK, "UTF-8 (the default)"),
        (
            "ISO-8859-1",
            {"LANG": "x.UTF-8", "LC_ALL": "de_CH"},
            "linux",
            Status.WARN,
            "LC_ALL=de_CH means ISO",
        ),
        ("ANSI_X3.4-1968", {}, "linux", Status.WARN, "no locale is set, which means ANSI_X3.4-1968"),
        ("US-ASCII", {"LC_CTYPE": "C"}, "darwin", Status.WARN, "LC_CTYPE=C means US-ASCII"),
        ("cp1252", {}, "win32", Status.OK, "Unicode"),
    ],
)
def test_locales(
    encoding: str, environment: dict[str, str], platform: str, status: Status, said: str
) -> None:
    found = check_encoding(encoding, environment, platform=platform)
    assert found.status is status
    assert said in found.text
    assert ("export LC_ALL=" in found.remedy) is (status is Status.WARN)
