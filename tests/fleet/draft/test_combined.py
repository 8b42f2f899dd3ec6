"""Lookup first, the model on a miss, and what is left when the model fails."""

from __future__ import annotations

import pytest

from fleetchat.errors import DrafterFailed
from fleetchat.fleet.draft.combined import CombinedDrafter, what_is_left
from fleetchat.fleet.draft.interface import DraftKey, DraftSource
from fleetchat.fleet.draft.ngram import NgramDrafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.wire.frames import Draw
from tests.fakes.drafters import FailingDrafter, RightDrafter

GREEDY = Draw(0.0, 1.0, 0, 1.0, 0, 0)
HIT, MISS = [1, 2, 3, 1, 2], [1, 2, 3, 4, 5]


def combined() -> tuple[CombinedDrafter, RightDrafter]:
    model = RightDrafter(lambda session, position: position)
    return CombinedDrafter(NgramDrafter(), model), model


def test_a_hit_is_sent_and_the_model_is_not_asked() -> None:
    drafter, model = combined()
    proposal = drafter.propose(1, HIT, lambda key: 2, GREEDY)
    assert (proposal.ids, proposal.source, model.calls) == ((3, 1), DraftSource.NGRAM, 0)


def test_the_model_drafts_on_a_miss() -> None:
    drafter, _ = combined()
    proposal = drafter.propose(1, MISS, lambda key: 2, GREEDY)
    assert (proposal.ids, proposal.source) == ((5, 6), DraftSource.MODEL)


def test_a_match_that_is_not_worth_sending_is_a_miss_that_is_still_judged() -> None:
    drafter, _ = combined()
    proposal = drafter.propose(1, HIT, lambda key: 2 if key.source is DraftSource.MODEL else 0, GREEDY)
    assert (proposal.ids, proposal.source) == ((5, 6), DraftSource.MODEL)
    assert [guess.key for guess in proposal.guesses] == [
        DraftKey(DraftSource.MODEL),
        DraftKey(DraftSource.NGRAM, 2),
    ]


def test_when_the_model_fails_the_lookup_is_left() -> None:
    lookup = NgramDrafter()
    drafter = CombinedDrafter(lookup, FailingDrafter(NoDrafter(), 0))
    with pytest.raises(DrafterFailed):
        drafter.propose(1, MISS, lambda key: 1, GREEDY)
    assert what_is_left(drafter) is lookup
    assert what_is_left(drafter.second).name == "none"


def test_both_forget() -> None:
    drafter, model = combined()
    drafter.propose(1, HIT, lambda key: 1, GREEDY)
    drafter.forget(1)
    assert model.forgotten == [1]
