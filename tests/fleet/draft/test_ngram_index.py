"""The index gives what a plain search over the whole sequence gives, after any edits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.fleet.draft.ngram_index import CANDIDATES, LONGEST, NgramIndex


def built(ids: list[int]) -> NgramIndex:
    index = NgramIndex()
    for token in ids:
        index.append(token)
    return index


def searched(ids: list[int]) -> tuple[int, int]:
    """(length, position after) of the longest earlier match of the end, at least 2; the most recent one."""
    best = (0, 0)
    for end in range(len(ids) - 2, -1, -1):
        length = 0
        while length <= end and length < LONGEST and ids[end - length] == ids[-1 - length]:
            length += 1
        if length > best[0] and length >= 2:
            best = (length, end + 1)
    return best


# Few different tokens and at most CANDIDATES places: the bound is never reached.
texts = st.lists(st.integers(0, 3), max_size=CANDIDATES)


@settings(max_examples=200)
@given(texts)
def test_the_longest_and_most_recent_match_is_found(ids: list[int]) -> None:
    assert built(ids).longest_match() == searched(ids)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, CANDIDATES), st.lists(st.integers(0, 2), max_size=20)), max_size=6))
def test_an_edited_index_is_a_fresh_one(edits: list[tuple[int, list[int]]]) -> None:
    index, ids = NgramIndex(), []
    for keep, more in edits:
        ids = (ids[:keep] + more)[:CANDIDATES]
        index.truncate(min(keep, len(index)))
        for token in ids[len(index) :]:
            index.append(token)
        assert index.ids == ids
        assert index.longest_match() == searched(ids)


@given(st.lists(st.integers(0, 9), min_size=LONGEST + 2, max_size=50), st.integers(0, 9))
def test_matches_longer_than_the_longest_size_go_to_the_most_recent(unit: list[int], token: int) -> None:
    ids = [*unit, token, *unit, token, *unit]
    assert built(ids).longest_match() == searched(ids)


def test_one_token_is_no_match() -> None:
    assert built([1, 2, 3, 2]).longest_match() == (0, 0)
    assert built([]).longest_match() == (0, 0)
    assert built([7]).longest_match() == (0, 0)


def test_large_token_ids_are_kept_apart() -> None:
    assert built([2**31 - 1, 0, 1, 2**31 - 2, 2**31 - 1, 1, 2**31 - 1, 0]).longest_match() == (2, 2)


def test_only_the_most_recent_places_are_looked_at() -> None:
    """The end is 9 1 2; 1 2 stood in many places, and 9 1 2 only in the first of them."""

    def text(others: int) -> list[int]:
        return [
            9,
            1,
            2,
            50,
            *(token for number in range(others) for token in (100 + number, 1, 2, 60)),
            9,
            1,
            2,
        ]

    assert built(text(CANDIDATES - 1)).longest_match() == (3, 3)
    assert built(text(CANDIDATES)).longest_match() == (2, 4 + 4 * CANDIDATES - 1)


def test_a_continuation_goes_on_periodically_at_the_end() -> None:
    index = built([5, 1, 2, 3])
    assert index.continuation(1, 2) == (1, 2)
    assert index.continuation(1, 8) == (1, 2, 3, 1, 2, 3, 1, 2)
    assert index.continuation(3, 3) == (3, 3, 3)
    assert index.continuation(1, 0) == ()
