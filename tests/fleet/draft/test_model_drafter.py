"""The drafting model without OpenVINO: what is fed, what is drawn, and what is kept."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.engine.sampling import draw_token
from fleetchat.errors import DrafterFailed
from fleetchat.fleet.draft.interface import NOTHING, ChooseDepth
from fleetchat.fleet.draft.model_drafter import KEY, ModelDrafter
from fleetchat.wire.frames import Draw
from tests.fakes.draft_model import VOCABULARY, FakeModel, logits_after

GREEDY = Draw(0.0, 1.0, 0, 1.0, 5, 3)
PROMPT = [1, 2, 3]


def depth(number: int) -> ChooseDepth:
    return lambda key: number


def drawn(ids: list[int], number: int, draw: Draw) -> tuple[int, ...]:
    """What a chain with the same logits would draw after `ids`."""
    ids = list(ids)
    for _ in range(number):
        ids.append(draw_token(logits_after(ids), len(ids), draw, ids[draw.reply_start :]))
    return tuple(ids[len(ids) - number :])


def drafter(**changes: int) -> tuple[ModelDrafter, FakeModel]:
    model = FakeModel(**changes)
    return ModelDrafter(model, vocabulary=VOCABULARY), model


@pytest.mark.parametrize(
    "draw",
    [
        GREEDY,
        Draw(0.8, 1.0, 0, 1.0, 5, 3),
        Draw(0.8, 0.9, 10, 1.3, 6, 3),
        Draw(0.0, 1.0, 0, 2.0, 6, 3),
    ],
)
def test_it_drafts_what_a_chain_with_its_logits_would_draw(draw: Draw) -> None:
    reply = list(drawn(PROMPT, 20, draw))
    drafting, _ = drafter()
    for length in (0, 1, 7):
        proposal = drafting.propose(1, PROMPT + reply[:length], depth(8), draw)
        assert proposal.ids == tuple(reply[length : length + 8])
        assert proposal.guesses[0].key == KEY


def test_after_a_rejection_only_the_new_token_is_fed() -> None:
    drafting, model = drafter()
    first = drafting.propose(1, PROMPT, depth(3), GREEDY)
    model.fed.clear()
    kept = [*PROMPT, first.ids[0]]
    drafting.propose(1, [*kept, 39], depth(2), GREEDY)
    assert model.fed[0] == (39,)
    assert len(model.fed) == 2


def test_after_full_acceptance_the_last_draft_is_fed_too() -> None:
    drafting, model = drafter()
    first = drafting.propose(1, PROMPT, depth(3), GREEDY)
    model.fed.clear()
    second = drafting.propose(1, [*PROMPT, *first.ids, 39], depth(1), GREEDY)
    assert model.fed == [(first.ids[-1], 39)]
    assert second.caught_up == 2
    assert second.ids == drawn([*PROMPT, *first.ids, 39], 1, GREEDY)


sequences = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 2), sequences, st.integers(0, 4), st.integers(0, 3)), max_size=8))
def test_any_history_of_calls_drafts_as_a_fresh_drafter(
    calls: list[tuple[int, list[int], int, int]],
) -> None:
    drafting, _ = drafter()
    for seed, (session, committed, number, reply_start) in zip(count(), calls, strict=False):
        draw = Draw(0.8, 1.0, 0, 1.2, seed, min(reply_start, len(committed)))
        proposal = drafting.propose(session, committed, depth(number), draw)
        assert proposal.ids == drawn(committed, number, draw)


def test_a_growing_reply_of_accepted_and_rejected_drafts_never_loses_a_row() -> None:
    drafting, _ = drafter()
    committed = list(PROMPT)
    for round_ in range(12):
        proposal = drafting.propose(1, committed, depth(4), GREEDY)
        assert proposal.ids == drawn(committed, 4, GREEDY)
        committed += [*proposal.ids[: round_ % 5], round_]


def test_ids_that_the_target_does_not_have_are_never_drafted() -> None:
    drafting = ModelDrafter(FakeModel(vocabulary=64), vocabulary=10)
    assert all(token < 10 for token in drafting.propose(1, PROMPT, depth(40), GREEDY).ids)


def test_depth_zero_costs_nothing() -> None:
    drafting, model = drafter()
    assert drafting.propose(1, PROMPT, depth(0), GREEDY) == NOTHING
    assert model.caches == 0


def test_it_stops_between_tokens_with_what_it_has() -> None:
    drafting, model = drafter()
    stopped = drafting.propose(1, PROMPT, depth(8), GREEDY, lambda: len(model.fed) >= 3)
    assert stopped.ids == drawn(PROMPT, 3, GREEDY)
    assert drafting.propose(1, PROMPT, depth(8), GREEDY).ids == drawn(PROMPT, 8, GREEDY)


def test_it_stops_inside_a_long_prompt() -> None:
    drafting, _ = drafter(rows_at_once=2)
    looks = count()
    prompt = list(range(9))
    assert drafting.propose(1, prompt, depth(2), GREEDY, lambda: next(looks) >= 2).ids == ()
    again = drafting.propose(1, prompt, depth(2), GREEDY)
    assert again.caught_up == 5
    assert again.ids == drawn(prompt, 2, GREEDY)


def test_a_failure_is_named_and_its_session_dropped() -> None:
    drafting, model = drafter()
    model.fails_after = 2
    with pytest.raises(DrafterFailed, match=r"^the draft model small failed: out of memory$") as caught:
        drafting.propose(1, PROMPT, depth(8), GREEDY)
    assert caught.value.hint == "the answer goes on without it"
    model.fails_after = -1
    assert drafting.propose(1, PROMPT, depth(8), GREEDY).ids == drawn(PROMPT, 8, GREEDY)
    assert model.caches == 2


def test_the_caches_used_least_recently_are_given_up() -> None:
    model = FakeModel()
    drafting = ModelDrafter(model, vocabulary=VOCABULARY, sessions=2)
    for session in (1, 2, 1, 3, 1):
        drafting.propose(session, PROMPT, depth(1), GREEDY)
    assert model.caches == 3
    drafting.propose(2, PROMPT, depth(1), GREEDY)
    assert model.caches == 4


def test_a_forgotten_session_starts_again() -> None:
    drafting, model = drafter()
    drafting.propose(1, PROMPT, depth(1), GREEDY)
    drafting.forget(1)
    drafting.forget(2)
    drafting.propose(1, PROMPT, depth(1), GREEDY)
    assert model.caches == 2


def test_a_session_forgotten_while_it_drafts_is_dropped_before_the_next_draft() -> None:
    drafting, model = drafter()

    def forgetting() -> bool:
        drafting.forget(1)
        return False

    drafting.propose(1, PROMPT, depth(1), GREEDY, forgetting)
    drafting.propose(1, PROMPT, depth(1), GREEDY)
    assert model.caches == 2
