"""What the benchmarks ask, and how much of an answer counts (pure)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources

WORKLOADS = ("chat", "rewrite", "code")
LOOP_GRAM = 12  # tokens: a small model repeats itself sooner or later, and a loop is easy to draft


def prompts(workload: str) -> tuple[str, ...]:
    """The prompts of one workload, at least 16. Raises KeyError when it is unknown."""
    text = resources.files("fleetchat.bench").joinpath("prompts.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)[workload])


def tokens_before_loop(token_ids: Sequence[int], gram: int = LOOP_GRAM) -> int:
    """How many tokens come before the first `gram`-gram that was seen before ends.

    The tokens of the repeated gram itself do not count.
    """
    seen: set[tuple[int, ...]] = set()
    for end in range(gram, len(token_ids) + 1):
        found = tuple(token_ids[end - gram : end])
        if found in seen:
            return end - gram
        seen.add(found)
    return len(token_ids)
