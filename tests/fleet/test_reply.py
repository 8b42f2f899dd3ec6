"""The commit rule: stop id, stop string, maximum, context, and what is shown when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetchat.fleet.reply import Reply, undecided_suffix
from fleetchat.fleet.telemetry import FinishReason


class Letters:
    """Token n is the n-th letter; 25 (z) is held back until the next token or the end."""

    def __init__(self) -> None:
        self.held = ""

    def push(self, token_id: int) -> str:
        text, self.held = self.held, ""
        if token_id == 25:
            self.held = "z"
            return text
        return text + chr(ord("a") + token_id)

    def finish(self) -> str:
        text, self.held = self.held, ""
        return text


def ids(text: str) -> list[int]:
    return [ord(letter) - ord("a") for letter in text]


def make(
    *, stop_ids: str = "", stop_strings: tuple[str, ...] = (), max_tokens: int = 100, room: int = 100
) -> Reply:
    return Reply(
        Letters(),
        stop_ids=frozenset(ids(stop_ids)),
        stop_strings=stop_strings,
        max_tokens=max_tokens,
        room=room,
    )


def feed(reply: Reply, text: str) -> list[str]:
    shown = []
    for token in ids(text):
        if reply.finish_reason is not None:
            break
        shown.append(reply.commit(token))
    return shown


def test_a_stop_id_ends_the_reply_and_is_no_part_of_it() -> None:
    reply = make(stop_ids="x")
    assert feed(reply, "abxcd") == ["a", "b", ""]
    assert (reply.text, reply.token_ids, reply.finish_reason) == ("ab", [0, 1], FinishReason.STOP)


def test_text_held_back_by_the_decoder_comes_with_the_end() -> None:
    reply = make(stop_ids="x")
    assert feed(reply, "azx") == ["a", "", "z"]
    assert reply.text == "az"


def test_a_stop_string_ends_the_text_before_it_and_is_never_shown() -> None:
    reply = make(stop_strings=("cde",))
    assert feed(reply, "abcdefg") == ["a", "b", "", "", ""]
    assert (reply.text, reply.token_ids, reply.finish_reason) == ("ab", [0, 1], FinishReason.STOP)


def test_the_beginning_of_a_stop_string_is_shown_once_it_is_none() -> None:
    reply = make(stop_strings=("cde",))
    assert feed(reply, "abcdx") == ["a", "b", "", "", "cdx"]
    assert reply.finish_reason is None


def test_the_earliest_of_several_stop_strings_wins() -> None:
    reply = make(stop_strings=("d", "cd"))
    feed(reply, "abcd")
    assert reply.text == "ab"


def test_a_stop_string_completed_by_the_last_held_character_is_found() -> None:
    reply = make(stop_strings=("bz",), stop_ids="x")
    assert "".join(feed(reply, "abzx")) == "a"
    assert reply.token_ids == [0]


def test_held_back_text_is_shown_when_the_reply_ends_otherwise() -> None:
    reply = make(stop_strings=("cde",), max_tokens=4)
    assert "".join(feed(reply, "abcdefg")) == "abcd"
    assert reply.finish_reason is FinishReason.LENGTH


def test_one_token_at_most_gives_one_token() -> None:
    reply = make(max_tokens=1)
    assert feed(reply, "abc") == ["a"]
    assert (reply.token_ids, reply.finish_reason) == ([0], FinishReason.LENGTH)


def test_a_full_context_has_its_own_reason() -> None:
    reply = make(room=3)
    feed(reply, "abcdef")
    assert (reply.token_ids, reply.finish_reason) == ([0, 1, 2], FinishReason.CONTEXT)


def test_a_stop_id_at_the_last_place_counts_as_stop() -> None:
    reply = make(stop_ids="x", max_tokens=2)
    feed(reply, "ax")
    assert reply.finish_reason is FinishReason.STOP


def test_ending_from_outside_keeps_the_text() -> None:
    reply = make(stop_strings=("cde",))
    feed(reply, "abcd")
    assert reply.end(FinishReason.CANCELLED) == "cd"
    assert (reply.text, reply.finish_reason) == ("abcd", FinishReason.CANCELLED)
    assert reply.end(FinishReason.ERROR) == ""


def test_a_finished_reply_takes_no_token() -> None:
    reply = make(max_tokens=1)
    reply.commit(0)
    with pytest.raises(ValueError, match="finished"):
        reply.commit(1)


@pytest.mark.parametrize(
    ("text", "stops", "length"),
    [
        ("abc", ("cd",), 1),
        ("abc", ("bcd", "cx"), 2),
        ("abc", (), 0),
        ("abc", ("abc",), 0),
        ("aa", ("aaa",), 2),
    ],
)
def test_undecided_suffix(text: str, stops: tuple[str, ...], length: int) -> None:
    assert undecided_suffix(text, stops) == length


@given(
    text=st.text(alphabet="abz", max_size=30),
    stops=st.lists(st.text(alphabet="abz", min_size=1, max_size=4), max_size=3),
)
def test_what_was_shown_is_the_text_up_to_the_first_stop_string(text: str, stops: list[str]) -> None:
    reply = make(stop_strings=tuple(stops))
    shown = "".join(feed(reply, text))
    shown += reply.end(FinishReason.CANCELLED)
    found = [text.find(stop) for stop in stops if stop in text]
    earliest_end = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=None)
    assert shown == reply.text
    if earliest_end is None:
        assert shown == text
    else:
        completed = [text.find(stop) for stop in stops if 0 <= text.find(stop) <= earliest_end - len(stop)]
        assert shown == text[: min(completed)] or shown == text[: min(found)]


@given(
    before=st.text("abcxyz", max_size=6),
    fresh=st.text("abcxyz", min_size=1, max_size=4),
    maximum=st.integers(1, 10),
    room=st.integers(1, 10),
    stop_strings=st.sampled_from([(), ("cx",)]),
)
def test_tokens_that_are_said_to_go_on_do_not_end_the_reply(
    before: str, fresh: str, maximum: int, room: int, stop_strings: tuple[str, ...]
) -> None:
    reply = make(stop_ids="y", stop_strings=stop_strings, max_tokens=maximum, room=room)
    feed(reply, before)
    goes_on = reply.goes_on_after(ids(fresh))
    feed(reply, fresh)
    if goes_on:
        assert reply.finish_reason is None
    elif not stop_strings:
        assert reply.finish_reason is not None
