from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.app.blocks import (
    LIST_ITEMS,
    Block,
    Thought,
    definitions,
    split_blocks,
    split_thought,
    with_definitions,
)
from fleetchat.chat.sanitise import sanitise

LINES = st.lists(
    st.sampled_from(
        [
            *("# T", "para", "- a", "- b", "  more", "1. x", "2. y", "> q", "```", "```py", "| a | b |"),
            *("|---|---|", "| 1 | 2 |", "", "---", "===", "[x]: y", "    code", "<b>", "* * *", "~~~", "-"),
        ]
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(LINES, st.integers(1, 7))
def test_blocks_lose_nothing_and_finished_ones_stay(lines: list[str], size: int) -> None:
    text = sanitise("\n".join(lines))
    assert "".join(block.source for block in split_blocks(text)) == text
    shown, tail = [], ""
    for start in range(0, len(text), size):  # as a reply grows
        *finished, last = split_blocks(tail + text[start : start + size]) or [Block("")]
        shown += finished
        tail = last.source
    assert "".join(block.source for block in shown) + tail == text


def test_each_top_level_block_is_one() -> None:
    text = "# Title\n\nOne\ntwo\n\n```py\na\n\nb\n```\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n"
    assert [block.source for block in split_blocks(text)] == [
        "# Title\n\n",
        "One\ntwo\n\n",
        "```py\na\n\nb\n```\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "> quote\n",
    ]


def test_a_long_list_is_cut_between_items_and_told_to_go_on() -> None:
    text = "".join(f"{number}. item\n" for number in range(1, 46))
    blocks = split_blocks(text)
    assert [block.source.count("\n") for block in blocks] == [LIST_ITEMS, LIST_ITEMS, 5]
    assert [block.joined for block in blocks] == [True, True, False]
    assert blocks[1].source.startswith("21. item")


def test_links_that_are_defined_later_are_found() -> None:
    text = "See [here][1].\n\n[1]: https://example.org\n"
    assert definitions(text) == "[1]: https://example.org"
    assert with_definitions("See [here][1].\n\n", definitions(text)) == (
        "See [here][1].\n\n[1]: https://example.org\n"
    )
    assert with_definitions("plain\n", definitions(text)) == "plain\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", Thought(None, False, "Hello")),
        ("<think>\nhm", Thought("hm", True, "")),
        ("\n<think>hm</think>\n\nYes", Thought("hm", False, "Yes")),
        ("hm\n</think>\n\nYes", Thought("hm", False, "Yes")),
        ("I write <think> here", Thought(None, False, "I write <think> here")),
        ("I write <think> and </think>", Thought(None, False, "I write <think> and </think>")),
    ],
)
def test_a_thought_is_told_from_the_reply(text: str, expected: Thought) -> None:
    assert split_thought(text) == expected
