"""The end of a message about a misspelt name."""

from __future__ import annotations

import pytest

from fleetchat.spelling import nearest

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
