"""Every command can be reached, by key, by slash and by the palette, and has something that does it."""

from __future__ import annotations

import pytest

from fleetchat.app.actions import ACTIONS
from fleetchat.app.commands import BY_ID, BY_SLASH, COMMANDS, completions, parse_slash
from fleetchat.app.keymap import RESERVED, key_name, resolve


def test_every_command_has_an_action_and_a_way_to_it() -> None:
    assert set(ACTIONS) == set(BY_ID)
    assert len(BY_ID) == len(COMMANDS)
    assert all(command.keys or command.slash for command in COMMANDS)
    assert len(BY_SLASH) == sum(bool(command.slash) for command in COMMANDS)


def test_default_keys_are_had_once_and_none_is_needed_for_writing() -> None:
    keys = [key for command in COMMANDS for key in command.keys.split(",") if key]
    assert len(keys) == len(set(keys))
    assert not set(keys) & RESERVED
    assert resolve({}).problems == ()


def test_a_wish_takes_a_key_from_its_default_command() -> None:
    keymap = resolve({"tab.new": "ctrl+t, F5"})
    assert keymap.keys["tab.new"] == "ctrl+t,f5"
    assert keymap.keys["message.regenerate"] == "alt+r"
    assert keymap.shown("tab.new") == "Ctrl+T, F5"
    assert keymap.problems == ()


def test_a_command_may_be_named_as_it_is_typed() -> None:
    assert resolve({"find": "ctrl+t"}) == resolve({"chat.find": "ctrl+t"})
    assert resolve({"find": "ctrl+t"}).shown("chat.find") == "Ctrl+T"


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ({"tab.nw": "ctrl+t"}, "there is no command 'tab.nw'; the nearest is 'tab.new'; F1 lists all"),
        ({"zzzz": "ctrl+t"}, "there is no command 'zzzz'; F1 lists all"),
        ({"tab.new": "ctrl+q"}, "Ctrl+Q cannot be given to tab.new: it is needed for writing or leaving"),
        ({"tab.new": "x"}, "'x' cannot be given to tab.new: it is a letter that is typed"),
        ({"tab.new": "ctrl+banana"}, "'ctrl+banana' for tab.new is no key; write it as ctrl+t, alt+x or f5"),
        (
            {"tab.new": "ctrl+t", "tab.close": "ctrl+t"},
            "Ctrl+T is wanted by tab.new and by tab.close; the first has it",
        ),
    ],
)
def test_a_wish_that_cannot_be_had_is_told(wishes: dict[str, str], problem: str) -> None:
    keymap = resolve(wishes)
    assert keymap.problems == (f"key map: {problem}",)
    assert keymap.keys["tab.close"] == "f8,alt+w"


def test_keys_are_written_as_people_write_them() -> None:
    assert [key_name(key) for key in ("escape", "ctrl+pagedown", "f5")] == ["Esc", "Ctrl+PgDn", "F5"]


def test_slash_commands_are_told_from_messages() -> None:
    parsed = parse_slash("/rename  My chat ")
    assert parsed is not None
    assert parsed.command is BY_ID["tab.rename"]
    assert parsed.argument == "My chat"
    assert parse_slash("/NEW") is not None
    for message in ("hello", " /new", "/etc/passwd is what?", "/ what", "//", "/1"):
        assert parse_slash(message) is None or parse_slash(message).command is None  # type: ignore[union-attr]
    assert parse_slash("/etc/passwd is what?") is None
    unknown = parse_slash("/renam x")
    assert unknown is not None
    assert unknown.complaint.startswith("There is no command /renam; the nearest is 'rename'")


def test_what_is_typed_is_completed() -> None:
    names = ["rebalance", "record", "remove", "rename", "reopen", "retry"]
    assert [command.slash for command in completions("/re")] == names
    assert len(completions("/")) == len(BY_SLASH)
    assert completions("re") == completions("/rename x") == []
