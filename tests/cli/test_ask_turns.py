from __future__ import annotations

import pytest

from fleetchat.cli.ask_turns import (
    SEED_BITS,
    Asked,
    Entry,
    plan_conversations,
    turn_seed,
    without_last_newline,
)
from fleetchat.errors import InputError, PromptError


def prompt(text: str) -> Entry:
    return Entry(Asked.PROMPT, text)


def then(text: str) -> Entry:
    return Entry(Asked.THEN, text)


def no_stdin() -> str:
    raise AssertionError("stdin was read")


def test_a_further_turn_belongs_to_the_prompt_before_it() -> None:
    entries = [prompt("A"), then("B"), then("C"), prompt("D"), prompt("E"), then("F")]
    assert plan_conversations(entries, no_stdin) == (("A", "B", "C"), ("D",), ("E", "F"))


@pytest.mark.parametrize("entries", [[], [prompt("-")]])
def test_no_prompt_and_a_dash_read_stdin(entries: list[Entry]) -> None:
    assert plan_conversations(entries, lambda: "from a pipe\n") == (("from a pipe",),)


def test_further_turns_alone_follow_the_prompt_on_stdin() -> None:
    assert plan_conversations([then("B")], lambda: "A\n") == (("A", "B"),)


def test_a_further_turn_may_come_from_stdin() -> None:
    assert plan_conversations([prompt("A"), then("-")], lambda: "B") == (("A", "B"),)


def test_stdin_has_one_reader() -> None:
    with pytest.raises(InputError, match="one prompt only"):
        plan_conversations([prompt("-"), prompt("-")], no_stdin)


def test_a_further_turn_needs_a_prompt_before_it() -> None:
    with pytest.raises(InputError, match="before the first prompt"):
        plan_conversations([then("B"), prompt("A")], no_stdin)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([prompt("")], "the prompt is empty"),
        ([prompt(" \n\t")], "the prompt is empty"),
        ([], r"the prompt is empty \(read from stdin\)"),
        ([prompt("A"), then("")], "prompt 2 of 2 is empty"),
        ([prompt("A"), then("-")], r"prompt 2 of 2 is empty \(read from stdin\)"),
    ],
)
def test_an_empty_prompt_is_refused(entries: list[Entry], message: str) -> None:
    with pytest.raises(PromptError, match=f"^{message}$"):
        plan_conversations(entries, lambda: "\n")


@pytest.mark.parametrize(
    ("text", "kept"), [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\n", ""), (" a ", " a ")]
)
def test_one_newline_at_the_end_is_not_part_of_a_prompt(text: str, kept: str) -> None:
    assert without_last_newline(text) == kept


def test_turns_take_seeds_that_follow_the_given_one() -> None:
    assert [turn_seed(7, turn) for turn in range(3)] == [7, 8, 9]


def test_without_a_seed_every_turn_draws_one() -> None:
    seeds = {turn_seed(None, turn) for turn in (0, 0, 1, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**SEED_BITS for seed in seeds)
