"""Acceptance is counted by key and place, and every guess is judged by what was drawn."""

from __future__ import annotations

import pytest

from fleetchat.fleet.draft.acceptance import MODEL_PRIOR, Acceptance, prior
from fleetchat.fleet.draft.interface import DraftKey, DraftSource, Guess

MODEL = DraftKey(DraftSource.MODEL)
SHORT, LONG = DraftKey(DraftSource.NGRAM, 2), DraftKey(DraftSource.NGRAM, 16)


def test_before_any_trial_the_prior_is_expected() -> None:
    assert Acceptance().chances(MODEL, 3) == [MODEL_PRIOR] * 3
    assert prior(SHORT) < prior(LONG)
    assert prior(DraftKey(DraftSource.NGRAM, 5)) == 0.2


def test_trials_move_their_own_key_only() -> None:
    acceptance = Acceptance()
    for _ in range(30):
        acceptance.observe([Guess(SHORT, (1,))], (2,))
    assert acceptance.first(SHORT) < 0.05
    assert acceptance.first(LONG) == prior(LONG)


def test_places_behind_the_first_mismatch_are_not_judged() -> None:
    """The second place always fails: after it, nothing is known of the third but what all places say."""
    acceptance = Acceptance()
    for _ in range(40):
        acceptance.observe([Guess(MODEL, (1, 1, 1))], (1, 9))
    first, second, third = acceptance.chances(MODEL, 3)
    assert first > 0.9
    assert second < 0.1
    assert third == pytest.approx(0.5, abs=0.05)


def test_a_guess_longer_than_what_was_drawn_is_judged_as_far_as_that() -> None:
    acceptance = Acceptance()
    acceptance.observe([Guess(MODEL, (1, 2, 3))], (1,))
    first, second, _ = acceptance.chances(MODEL, 3)
    assert first > second > MODEL_PRIOR


def test_a_change_is_noticed_within_some_tens_of_trials() -> None:
    acceptance = Acceptance()
    for _ in range(500):
        acceptance.observe([Guess(MODEL, (1,))], (2,))
    assert acceptance.first(MODEL) < 0.1
    for _ in range(40):
        acceptance.observe([Guess(MODEL, (1,))], (1,))
    assert acceptance.first(MODEL) > 0.6


def test_a_place_that_is_not_tried_any_more_goes_back_to_what_all_places_say() -> None:
    acceptance = Acceptance()
    for _ in range(10):
        acceptance.observe([Guess(MODEL, (1, 1))], (1, 9))
    low = acceptance.chances(MODEL, 2)[1]
    for _ in range(300):
        acceptance.observe([Guess(MODEL, (1,))], (1,))
    assert low < 0.4
    assert acceptance.chances(MODEL, 2)[1] > 0.8
