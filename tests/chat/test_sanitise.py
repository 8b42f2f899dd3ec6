from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.chat.sanitise import Sanitiser, sanitise

AWKWARD = st.text(
    alphabet=st.sampled_from("ab \r\n\t\x00\x1b\x07\x7f\x85\x9b\v\f\x1c\x1d\u2028\u2029é\u202e👍")
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\r\nlines", "two\nlines"),
        ("two\rlines", "two\nlines"),
        ("\r\r\n\n", "\n\n\n"),
        ("a\vb\fc\x1cd\x85e\u2028f\u2029g", "a\nb\nc\nd\ne\nf\ng"),
        ("tab\tstays", "tab\tstays"),
        ("\x1b]52;c;aGk=\x07copied\x1b\\", "]52;c;aGk=copied\\"),
        ("\x1b[2Jcleared \x9b2J", "[2Jcleared 2J"),
        ("nul\x00 bel\x07 del\x7f gs\x1d", "nul bel del gs"),
        ("right\u202eto left\u202d", "rightto left"),
        ("العربية \u2067مع\u2069 \u200fنص", "العربية \u2067مع\u2069 \u200fنص"),
        ("क्\u200dष नमस्ते", "क्\u200dष नमस्ते"),
        ("👩\u200d👩\u200d👧 👍🏽", "👩\u200d👩\u200d👧 👍🏽"),
        ("[bold]brackets[/bold]", "[bold]brackets[/bold]"),
    ],
)
def test_controls_are_dropped_and_line_ends_become_newlines(text: str, shown: str) -> None:
    assert sanitise(text) == shown


def test_every_control_character_is_gone() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        assert sanitise(chr(code)) in {"", "\n", "\t"}


@settings(max_examples=200)
@given(st.text() | AWKWARD)
def test_sanitised_text_is_not_changed_again(text: str) -> None:
    assert sanitise(sanitise(text)) == sanitise(text)


@settings(max_examples=200)
@given(st.lists(AWKWARD | st.text(max_size=3), max_size=8))
def test_pieces_give_what_the_whole_gives(pieces: list[str]) -> None:
    sanitiser = Sanitiser()
    assert "".join(sanitiser.push(piece) for piece in pieces) == sanitise("".join(pieces))
