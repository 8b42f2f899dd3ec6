"""Settings of a chat in words: what is set is never told as nothing."""

from __future__ import annotations

import pytest

from fleetchat.app.option_words import changed_words, options_words, value_words
from fleetchat.chat.options import CHECKS, ChatOptions

LOWEST = {
    "system": "Be brief.",
    "temperature": "0",
    "top_p": "0.1",
    "top_k": "0",
    "repetition_penalty": "0.5",
    "max_tokens": "1",
    "seed": "0",
    "overflow": "refuse",
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_value_is_told_as_it_was_set(name: str) -> None:
    options = ChatOptions().changed(name, LOWEST[name])
    assert changed_words(options, name) == f"{name}: {LOWEST[name]}"
    assert changed_words(options.changed(name, "default"), name) == f"{name}: as configured"
    assert f"This chat sets {name} {LOWEST[name]}. As configured: " in options_words(options, None)


def test_all_that_applies_is_listed_with_its_value() -> None:
    configured = ChatOptions(None, 0.7, 1.0, 0, 1.05, 512, None, "refuse")
    assert options_words(ChatOptions(temperature=0.0, system=""), configured) == (
        "This chat sets system none, temperature 0. As configured: top_p 1, top_k 0, "
        "repetition_penalty 1.05, max_tokens 512, seed another for each reply, overflow refuse.\n"
        "/set NAME VALUE changes one, /set NAME default unsets it."
    )
    assert "As configured: system none, temperature 0.7," in options_words(ChatOptions(), configured)
    assert "As configured: system, temperature, top_p" in options_words(ChatOptions(), None)


def test_a_long_value_is_cut_to_one_line() -> None:
    words = value_words("a line\n" * 100)
    assert len(words) == 60
    assert words.startswith("a line a line")
    assert words.endswith("…")
