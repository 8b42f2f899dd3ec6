"""The end of a message about a misspelt name."""

from __future__ import annotations

import pytest

from fleetchat.spelling import nearest, offered, shortened

OPTIONS = ("--system", "--help", "--json", "--stages", "-h")


@pytest.mark.parametrize(
    ("word", "known", "end"),
    [
        ("--stagse", OPTIONS, "; the nearest is '--stages'"),
        ("--js", OPTIONS, "; the nearest is '--json'"),
        ("--nonsense", OPTIONS, ""),
        ("--all", OPTIONS, ""),
        ("nonsense", ("continue", "new"), ""),
        ("renam", ("rename", "remove"), "; the nearest is 'rename'"),
        ("tyni", ("big", "tiny"), "; the nearest is 'tiny'"),
        ("itny", ("big", "tiny"), "; the nearest is 'tiny'"),
        ("", OPTIONS, ""),
    ],
)
def test_only_what_is_alike_is_offered(word: str, known: tuple[str, ...], end: str) -> None:
    assert nearest(word, known) == end


def test_few_names_are_told_and_of_many_the_nearest() -> None:
    assert offered("x", [], "/model") == ""
    assert offered("x", ["tiny", "other"], "/model") == "; there are tiny, other"
    many = ["alpha", "beta", "gamma", "delta", "epsilon"]
    assert offered("gama", many, "/theme") == "; the nearest is 'gamma'; /theme shows all 5"
    assert offered("xyz", many, "/theme") == "; /theme shows all 5"


def test_a_long_word_is_not_repeated_in_full() -> None:
    assert shortened("word") == "word"
    assert shortened("w" * 1000) == "w" * 39 + "…"
