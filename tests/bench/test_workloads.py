"""Prompts, and where a reply begins to repeat itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleetchat.bench.workloads import WORKLOADS, LoopWatch, plain_text, prompts, tokens_before_loop, turned


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_has_at_least_sixteen_different_prompts(workload: str) -> None:
    assert len(set(prompts(workload))) >= 16


def test_the_plain_text_is_some_pages_long() -> None:
    assert len(plain_text().split()) > 800


def test_a_turned_list_has_the_same_items() -> None:
    assert turned("abcd", 6) == ["c", "d", "a", "b"]


def test_a_loop_is_cut_before_its_second_round() -> None:
    assert tokens_before_loop([*range(12), *range(12)]) == 12
    assert tokens_before_loop([*range(12), *range(11)]) == 23


def test_one_token_again_and_again_is_a_loop() -> None:
    assert tokens_before_loop([5] * 40) == 1


@given(some.lists(some.integers(0, 2), max_size=60), some.integers(1, 5))
def test_the_first_repeated_gram_is_found(ids: list[int], gram: int) -> None:
    grams = [tuple(ids[start : start + gram]) for start in range(len(ids) - gram + 1)]
    repeated = next((start for start, found in enumerate(grams) if found in grams[:start]), None)
    assert tokens_before_loop(ids, gram) == (len(ids) if repeated is None else repeated)


def test_the_watch_tells_at_the_token_that_completes_the_repetition() -> None:
    watch = LoopWatch(gram=2)
    assert [watch.push(token) for token in (1, 2, 3, 1, 2)] == [False, False, False, False, True]
