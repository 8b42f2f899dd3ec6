"""Adaptive depth on simulated chains: near the best fixed depth, and cheap when drafts never hold."""

from __future__ import annotations

import pytest

from fleetchat.fleet.draft.costs import RoundCosts
from fleetchat.fleet.draft.depth import REST, AdaptiveDepth, DepthPolicy, FixedDepth, Round
from fleetchat.fleet.draft.interface import NOTHING, DraftKey, DraftSource, Guess, Proposal
from tests.fakes.simulated_speculation import Profile, SimulatedSession, traversal

MODEL = DraftKey(DraftSource.MODEL)
MOST = 8
DELAYS = (0.0, 0.010, 0.050, 0.100)
DRAFT = 0.0015  # seconds a token of a small draft model
ROUNDS = 500


def ngram(length: int) -> DraftKey:
    return DraftKey(DraftSource.NGRAM, length)


def always(key: DraftKey, chance: float) -> Profile:
    return lambda number: [(key, 1.0, chance)]


def changing(key: DraftKey, before: float, after: float) -> Profile:
    return lambda number: [(key, 1.0, before if number < ROUNDS // 2 else after)]


def chat(number: int) -> list[tuple[DraftKey | None, float, float]]:
    return [(None, 0.75, 0.0), (ngram(2), 0.15, 0.45), (ngram(4), 0.07, 0.5), (ngram(9), 0.03, 0.9)]


def chat_then_copy(number: int) -> list[tuple[DraftKey | None, float, float]]:
    if number < ROUNDS // 2:
        return [(None, 0.6, 0.0), (ngram(2), 0.3, 0.05), (ngram(4), 0.1, 0.1)]
    return [(None, 0.1, 0.0), (ngram(4), 0.2, 0.6), (ngram(16), 0.7, 0.95)]


def adaptive() -> AdaptiveDepth:
    return AdaptiveDepth(RoundCosts(), MOST)


def speed(profile: Profile, delay: float, draft: float, policy: DepthPolicy, *, after: int = 0) -> float:
    session = SimulatedSession(profile, delay, draft)
    return session.tokens_per_second(policy, ROUNDS + after, after=after)


def share_of_best(profile: Profile, delay: float, draft: float) -> float:
    best = max(speed(profile, delay, draft, FixedDepth(depth)) for depth in (0, 1, 2, 3, 4, 6, 8))
    return speed(profile, delay, draft, adaptive()) / best


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(
    ("profile", "draft"),
    [
        *((always(ngram(4), chance), 0.0) for chance in (0.0, 0.3, 0.7, 0.95)),
        *((always(MODEL, chance), DRAFT) for chance in (0.0, 0.3, 0.7, 0.95)),
        (changing(MODEL, 0.02, 0.9), DRAFT),
        (changing(MODEL, 0.9, 0.02), DRAFT),
        (chat, 0.0),
        (chat_then_copy, 0.0),
    ],
)
def test_it_is_within_five_percent_of_the_best_fixed_depth(
    profile: Profile, draft: float, delay: float
) -> None:
    assert share_of_best(profile, delay, draft) >= 0.95


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("draft", [DRAFT, 0.006])
def test_a_model_that_is_always_wrong_costs_two_percent_at_most(draft: float, delay: float) -> None:
    wrong = always(MODEL, 0.0)
    none = speed(wrong, delay, 0.0, FixedDepth(0), after=100)
    assert speed(wrong, delay, draft, adaptive(), after=100) >= 0.98 * none


def test_it_stops_drafting_soon_when_drafts_never_hold() -> None:
    session = SimulatedSession(always(MODEL, 0.0), 0.0, DRAFT)
    session.tokens_per_second(adaptive(), 60)
    assert sum(session.depths[30:]) <= 3


def test_drafting_a_model_is_taken_up_again() -> None:
    session = SimulatedSession(changing(MODEL, 0.0, 0.9), 0.0, DRAFT)
    session.tokens_per_second(adaptive(), ROUNDS)
    assert sum(session.depths[150:250]) <= 10
    assert min(session.depths[-50:]) >= 2


def test_copying_is_noticed_without_a_draft_being_sent() -> None:
    """What lookup guesses is compared with the text also at depth 0."""
    policy = adaptive()
    for _ in range(60):
        played(policy, ngram(2), guessed=5, drawn=6)
    assert policy.choose(ngram(2)) == 0
    for _ in range(10):
        played(policy, ngram(2), guessed=5, drawn=5, depth=0)
    assert policy.choose(ngram(2)) > 0


def played(policy: DepthPolicy, key: DraftKey, *, guessed: int, drawn: int, depth: int | None = None) -> None:
    """One round without noise in which all guesses are the same token."""
    depth = policy.choose(key) if depth is None else depth
    ids = (guessed,) * depth
    emitted = (drawn,) * (depth + 1 if guessed == drawn else 1)
    proposal = Proposal(ids, (Guess(key, (*ids, guessed)),))
    policy.record(Round(proposal, emitted, depth + 1, traversal(depth + 1), 0.0))


def test_rows_of_other_sessions_count() -> None:
    """On a chain where eight rows cost what one does and the ninth doubles it, a full batch has no room."""
    costs = RoundCosts()
    for rows in (1, 4, 8, 9, 12, 16) * 20:
        costs.traversal.record(rows, 0.02 if rows <= 8 else 0.04)
    policy = AdaptiveDepth(costs, 4)
    for _ in range(30):
        policy.record(Round(Proposal((), (Guess(ngram(4), (5,)),)), (6,), 1, 0.02, 0.0))
        policy.record(Round(Proposal((), (Guess(ngram(4), (5,)),)), (5,), 1, 0.02, 0.0))
    assert policy.choose(ngram(4)) == 4
    assert policy.choose(ngram(4), other_rows=7) == 0


def test_it_says_why() -> None:
    policy = adaptive()
    for _ in range(60):
        played(policy, ngram(2), guessed=5, drawn=6)
    policy.choose(ngram(2))
    assert policy.reason.startswith("no draft: ")
    assert "of first drafts after a match of 2 or more tokens hold" in policy.reason
    policy.choose(ngram(16))
    assert policy.reason == "8 drafts: 95% of first drafts after a match of 16 or more tokens hold"
    policy.choose(MODEL)
    assert "of the draft model" in policy.reason


def test_a_round_without_a_time_still_counts_what_held() -> None:
    policy = adaptive()
    before = policy.choose(ngram(2))
    for _ in range(60):
        policy.record(Round(Proposal((), (Guess(ngram(2), (5,)),)), (6,), 300, 0.0, 0.0))
    assert policy.choose(ngram(2)) < before


def test_rounds_without_a_guess_are_rounds() -> None:
    policy = adaptive()
    for _ in range(20):
        policy.record(Round(NOTHING, (1,), 1, 0.016, 0.0))
    assert policy.choose(ngram(16)) > 0


def test_no_draft_is_allowed_at_all() -> None:
    policy = AdaptiveDepth(RoundCosts(), 0)
    policy.record(Round(NOTHING, (1,), 1, 0.016, 0.0))
    assert policy.choose(MODEL) == 0
    assert policy.choose(ngram(16)) == 0


@pytest.mark.parametrize(
    ("depth", "reason"), [(0, "0 drafts: fixed"), (1, "1 draft: fixed"), (8, "8 drafts: fixed")]
)
def test_a_fixed_depth_stays(depth: int, reason: str) -> None:
    policy = FixedDepth(depth)
    played(policy, MODEL, guessed=5, drawn=6)
    assert policy.choose(MODEL, other_rows=9) == depth
    assert policy.reason == reason


def test_the_next_session_does_not_try_a_useless_draft_model_all_over_again() -> None:
    costs = RoundCosts()
    first = AdaptiveDepth(costs, 8)
    assert drafted_in_vain(first, 200) >= 12
    assert [first.heir().choose(MODEL) for _ in range(3)] == [first.heir().choose(MODEL)] * 3
    assert drafted_in_vain(first.heir(), 20) <= 4


def drafted_in_vain(policy: DepthPolicy, rounds: int) -> int:
    """Drafts of a model that is always wrong."""
    drafted = 0
    for _ in range(rounds):
        count = policy.choose(MODEL)
        drafted += count
        ids = (1,) * count
        proposal = Proposal(ids, (Guess(MODEL, ids),) if ids else ())
        policy.record(Round(proposal, (2,), 1 + count, 0.02 * (1 + 0.1 * count), 0.001 * count))
    return drafted


def test_a_model_that_is_far_from_paying_is_not_thought_about_in_every_round() -> None:
    """Nor is anything lost by it: time and rounds count as before."""
    costs = RoundCosts()
    policy = AdaptiveDepth(costs, MOST)
    guess = Proposal((5,), (Guess(MODEL, (5,)),))
    for _ in range(60):
        policy.record(Round(guess, (6,), 2, 0.020, 0.002))
        policy.record(Round(NOTHING, (6,), 1, 0.018, 0.0))
    depths = [policy.choose(MODEL)]
    reason = policy.reason
    for _ in range(REST):
        policy.record(Round(NOTHING, (6,), 1, 0.018, 0.0))
        depths.append(policy.choose(MODEL))
        assert policy.reason == reason
    assert depths == [0] * (REST + 1)
    assert not FixedDepth(4).rest()
    level = costs.traversal.seconds(1)
    for _ in range(8 * (REST + 1)):  # the chain became slower
        policy.record(Round(NOTHING, (6,), 1, 0.036, 0.0))
        policy.choose(MODEL)
    assert costs.traversal.seconds(1) > 1.3 * level


def test_a_rest_is_as_long_whoever_asks() -> None:
    """`Speculation` asks whether to rest before it asks a draft model; `choose` is asked by others."""
    policy = AdaptiveDepth(RoundCosts(), MOST)
    guess = Proposal((5,), (Guess(MODEL, (5,)),))
    for _ in range(60):
        policy.record(Round(guess, (6,), 2, 0.020, 0.002))
        policy.record(Round(NOTHING, (6,), 1, 0.018, 0.0))
    assert policy.choose(MODEL) == 0
    assert [policy.rest() for _ in range(REST + 1)] == [True] * REST + [False]
