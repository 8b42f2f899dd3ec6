"""What the benchmarks ask, and how much of an answer counts (pure)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import TypeVar

WORKLOADS = ("chat", "rewrite", "code")
LOOP_GRAM = 12  # tokens: a small model repeats itself sooner or later, and a loop is easy to draft

Item = TypeVar("Item")


def prompts(workload: str) -> tuple[str, ...]:
    """The prompts of one workload, at least 16. Raises KeyError when it is unknown."""
    return tuple(tomllib.loads(_shipped("prompts.toml"))[workload])


def plain_text() -> str:
    """Some pages of plain English, written for this project."""
    return _shipped("plain.txt")


def turned(items: Sequence[Item], start: int) -> list[Item]:
    """All items once, beginning with number `start` (modulo their count)."""
    start %= len(items)
    return [*items[start:], *items[:start]]


class LoopWatch:
    """Tells, token by token, when a `gram`-gram comes for the second time."""

    def __init__(self, gram: int = LOOP_GRAM) -> None:
        self._gram = gram
        self._seen: set[tuple[int, ...]] = set()
        self._last: list[int] = []

    def push(self, token_id: int) -> bool:
        """Take one token; True when the last `gram` tokens were seen before, in this order."""
        self._last = [*self._last[1 - self._gram :], token_id] if self._gram > 1 else [token_id]
        if len(self._last) < self._gram:
            return False
        found = tuple(self._last)
        if found in self._seen:
            return True
        self._seen.add(found)
        return False


def tokens_before_loop(token_ids: Sequence[int], gram: int = LOOP_GRAM) -> int:
    """How many tokens come before the first `gram`-gram that was seen before.

    The tokens of the repeated gram itself do not count.
    """
    watch = LoopWatch(gram)
    for end, token_id in enumerate(token_ids, start=1):
        if watch.push(token_id):
            return end - gram
    return len(token_ids)


def _shipped(name: str) -> str:
    return resources.files("fleetchat.bench").joinpath(name).read_text(encoding="utf-8")
