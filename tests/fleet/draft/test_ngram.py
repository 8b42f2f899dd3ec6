"""Prompt lookup as the generation loop sees it: growing, edited and forgotten sessions."""

from __future__ import annotations

import pytest

from fleetchat.fleet.draft.interface import NOTHING, DraftKey, DraftSource, Guess, Proposal, at_most
from fleetchat.fleet.draft.ngram import NgramDrafter, confidence
from fleetchat.wire.frames import Draw


def draw(reply_start: int = 0, seed: int = 0) -> Draw:
    return Draw(0.0, 1.0, 0, 1.0, seed, reply_start)


def proposed(drafter: NgramDrafter, committed: list[int], depth: int = 3, *, session: int = 1) -> Proposal:
    return drafter.propose(session, committed, lambda key: depth, draw())


def test_it_drafts_what_followed_the_longest_match() -> None:
    committed = [1, 2, 3, 10, 20, 30, 40, 2, 3, 99, 1, 2, 3]
    key = DraftKey(DraftSource.NGRAM, 3)
    assert proposed(NgramDrafter(), committed) == Proposal((10, 20, 30), (Guess(key, (10, 20, 30, 40)),))


def test_without_a_match_of_two_tokens_there_is_nothing() -> None:
    assert proposed(NgramDrafter(), [1, 2, 3, 2]) == NOTHING
    assert proposed(NgramDrafter(), [1]) == NOTHING


def test_depth_zero_sends_nothing_and_still_says_its_guess() -> None:
    proposal = proposed(NgramDrafter(), [1, 2, 3, 1, 2], depth=0)
    assert proposal.ids == ()
    assert proposal.source is None
    assert proposal.guesses == (Guess(DraftKey(DraftSource.NGRAM, 2), (3,)),)


def test_a_repetition_is_continued() -> None:
    assert proposed(NgramDrafter(), [7, 8, 7, 8], depth=5).ids == (7, 8, 7, 8, 7)


@pytest.mark.parametrize(("length", "bucket"), [(2, 2), (3, 3), (5, 4), (8, 6), (15, 9), (16, 16), (31, 16)])
def test_longer_matches_are_counted_apart(length: int, bucket: int) -> None:
    assert confidence(length) == bucket


def test_a_growing_session_equals_a_fresh_one() -> None:
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3, 4, 1, 2, 3]
    drafter = NgramDrafter()
    for length in range(1, len(text) + 1):
        assert proposed(drafter, text[:length]) == proposed(NgramDrafter(), text[:length])


@pytest.mark.parametrize(
    "edited",
    [
        [1, 2, 3, 4, 1, 2],  # stopped early
        [1, 2, 9, 4, 1, 2],  # an earlier message was edited
        [1, 2, 9, 4, 5, 5, 5, 1, 2, 9, 8, 7, 1, 2],  # and the text became longer
        [1],
    ],
)
def test_an_edited_session_equals_a_fresh_one(edited: list[int]) -> None:
    drafter = NgramDrafter()
    proposed(drafter, [1, 2, 3, 4, 1, 2, 3, 4, 1])
    again = drafter.propose(1, edited, lambda key: 3, draw(reply_start=len(edited)))
    assert again == proposed(NgramDrafter(), edited)


def test_sessions_do_not_see_each_other() -> None:
    drafter = NgramDrafter()
    proposed(drafter, [1, 2, 3, 4], session=1)
    assert proposed(drafter, [9, 1, 2], session=2) == NOTHING
    assert proposed(drafter, [1, 2, 3, 4, 1, 2], session=1).ids == (3, 4, 1)


def test_a_forgotten_session_is_built_again() -> None:
    drafter = NgramDrafter()
    proposed(drafter, [1, 2, 3, 1, 2])
    drafter.forget(1)
    drafter.forget(77)
    assert proposed(drafter, [1, 2, 3, 1, 2]).ids == (3, 1, 2)


def test_the_sessions_used_least_recently_make_room() -> None:
    drafter = NgramDrafter(capacity=10)
    for session in (1, 2, 1, 3):
        proposed(drafter, [1, 2, 3, 4], session=session)
    assert list(drafter._sessions) == [1, 3]
    proposed(drafter, [1] * 50, session=4)
    assert list(drafter._sessions) == [4]


def test_at_most_bounds_a_depth() -> None:
    key = DraftKey(DraftSource.MODEL)
    assert at_most(lambda key: 8, 3)(key) == 3
    assert at_most(lambda key: 2, 3)(key) == 2
    assert at_most(lambda key: 8, -1)(key) == 0
