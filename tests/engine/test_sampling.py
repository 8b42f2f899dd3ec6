"""draw_token against a slow reference, against the softmax, and against numbers fixed once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetchat.engine.sampling import _output, draw_token, gumbel, hashed, kept
from fleetchat.errors import SliceFailed
from fleetchat.wire.frames import Draw, FaultCode


def how(**changes: Any) -> Draw:
    defaults: dict[str, Any] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "penalty": 1.0,
        "seed": 5,
        "reply_start": 0,
    }
    return Draw(**(defaults | changes))


# --- the reference: one number at a time, whole sorts -------------------------------------------------


def naive_hash(seed: int, position: int, token: int) -> int:
    def stream(state: int, number: int) -> int:
        mask = 2**64 - 1
        for _ in range(number + 1):
            state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return mixed ^ (mixed >> 31)

    return stream(stream(stream(seed, 0), position), token) >> 11


def naive_kept(logits: list[float], settings: Draw) -> list[int]:
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if settings.top_k:
        order = order[: settings.top_k]
    if settings.top_p < 1.0:
        best = logits[order[0]]
        weights = [math.exp((logits[token] - best) / settings.temperature) for token in order]
        wanted, mass = settings.top_p * math.fsum(weights), 0.0
        for count, weight in enumerate(weights, start=1):
            mass += weight
            if mass >= wanted:
                return order[:count]
    return order


def naive_draw(logits: NDArray[np.float32], position: int, settings: Draw, reply: list[int]) -> int:
    values = [float(value) for value in logits]
    for token in set(reply):
        values[token] = (
            values[token] / settings.penalty if values[token] > 0 else values[token] * settings.penalty
        )
    if settings.temperature == 0:
        return max(range(len(values)), key=lambda token: (values[token], -token))
    scores = {
        token: values[token] / settings.temperature
        - math.log(-math.log((naive_hash(settings.seed, position, token) + 0.5) / 2**53))
        for token in naive_kept(values, settings)
    }
    return max(scores, key=lambda token: (scores[token], -token))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    st.sampled_from([0, 1, 3, 40]),
    st.sampled_from([1.0, 1.3, 0.8]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_equals_the_reference(
    seed: int, vocabulary: int, temperature: float, top_p: float, top_k: int, penalty: float, coarse: bool
) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(vocabulary) * 3).astype(np.float32)
    if coarse:  # many ties
        logits = np.round(logits)
    reply = random.integers(0, vocabulary, random.integers(0, 30)).tolist()
    draw = how(temperature=temperature, top_p=top_p, top_k=top_k, penalty=penalty, seed=seed * 2_147_483_659)
    position = seed % 97
    assert draw_token(logits, position, draw, reply) == naive_draw(logits, position, draw, reply)


@pytest.mark.parametrize("spread", [0.5, 4.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.9), (50, 1.0), (300, 0.7), (1000, 0.999), (0, 0.3)])
def test_kept_ids_of_a_large_vocabulary_equal_the_reference(spread: float, top_k: int, top_p: float) -> None:
    logits = (np.random.default_rng(3).standard_normal(20_000) * spread).astype(np.float16).astype(np.float32)
    ids, scaled = kept(logits, 0.8, top_k, top_p)
    expected = naive_kept(logits.astype(float).tolist(), how(temperature=0.8, top_k=top_k, top_p=top_p))
    assert ids.tolist() == sorted(expected)
    assert np.allclose(scaled, (logits[ids].astype(np.float64) - logits.max()) / 0.8)


# --- the hash ----------------------------------------------------------------------------------------


def test_the_generator_is_splitmix64() -> None:
    """The first outputs for seed 1234567, as published with the reference implementation."""
    assert [_output(1234567, number) for number in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize(
    ("seed", "position", "expected"),
    [
        (0, 0, [1249383295688599, 8746909956485189, 2502496043069471, 1975495098992457]),
        (42, 7, [71765106869605, 840053393114763, 6436702337146684, 1966826364290461]),
        (2**63 - 1, 100_000, [8931948695337392, 945778226503086, 6211133916010284, 5916382963480250]),
    ],
)
def test_fixed_hashes(seed: int, position: int, expected: list[int]) -> None:
    """These numbers must never change: a seed stored with a chat gives the same reply for ever."""
    assert hashed(seed, position, np.array([0, 1, 2, 49_151])).tolist() == expected


def test_fixed_draws() -> None:
    logits = np.linspace(-4, 4, 1000, dtype=np.float32)
    draw = how(temperature=0.8, top_p=0.95, top_k=500, penalty=1.1, seed=42)
    drawn = [draw_token(logits, position, draw, [999, 998]) for position in range(8)]
    assert drawn == [890, 926, 927, 906, 917, 908, 866, 992]


def test_hashing_in_chunks_changes_nothing() -> None:
    ids = np.arange(20_000)
    assert np.array_equal(gumbel(9, 4, ids)[8_190:8_200], gumbel(9, 4, ids[8_190:8_200]))


def test_gumbel_is_finite_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**53 - 1], dtype=np.uint64)
    monkeypatch.setattr("fleetchat.engine.sampling.hashed", lambda seed, position, ids: ends)
    low, high = gumbel(0, 0, np.array([0, 1]))
    assert low == pytest.approx(-math.log(54 * math.log(2)))
    assert high == pytest.approx(53 * math.log(2))


# --- the distribution --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (6, 1.0), (0, 0.8), (8, 0.9)])
def test_draws_over_20000_seeds_follow_the_softmax(top_k: int, top_p: float) -> None:
    logits = np.array([1.0, 0.2, 2.0, -1.0, 0.9, 1.4, 1.41, -0.5, 0.0, 1.1], dtype=np.float32)
    ids, scaled = kept(logits, 0.9, top_k, top_p)
    probabilities = np.exp(scaled) / np.exp(scaled).sum()
    counts = np.zeros(len(logits))
    for seed in range(20_000):
        counts[draw_token(logits, 11, how(temperature=0.9, top_k=top_k, top_p=top_p, seed=seed), [])] += 1
    expected = 20_000 * probabilities
    statistic = float(((counts[ids] - expected) ** 2 / expected).sum())
    freedom = len(ids) - 1
    assert counts[ids].sum() == 20_000
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.slow
def test_draws_at_neighbouring_positions_are_independent() -> None:
    logits = np.zeros(4, dtype=np.float32)
    counts = np.zeros((4, 4))
    before = 0
    for position in range(20_000):
        token = draw_token(logits, position, how(seed=1), [])
        counts[before, token] += 1
        before = token
    assert float(((counts - 1250) ** 2 / 1250).sum()) < 15 + 4 * math.sqrt(30)


# --- the rules, one by one ---------------------------------------------------------------------------


def test_arg_max_and_its_ties() -> None:
    logits = np.array([0, 3, 1, 3], dtype=np.float32)
    assert draw_token(logits, 0, how(temperature=0.0), []) == 1


def test_top_k_ties_go_to_the_lower_id() -> None:
    logits = np.array([2, 1, 3, 1, 1, 2], dtype=np.float32)
    assert kept(logits, 1.0, 4, 1.0)[0].tolist() == [0, 1, 2, 5]


def test_top_p_ties_go_to_the_lower_id() -> None:
    logits = np.zeros(10, dtype=np.float32)
    assert kept(logits, 1.0, 0, 0.25)[0].tolist() == [0, 1, 2]


def test_top_p_keeps_at_least_one() -> None:
    logits = np.array([0, 5, 0], dtype=np.float32)
    assert kept(logits, 1.0, 0, 1e-9)[0].tolist() == [1]


def test_top_p_counts_within_top_k() -> None:
    """Two of four equal ids are kept first, so half of the mass is one id."""
    logits = np.zeros(4, dtype=np.float32)
    assert kept(logits, 1.0, 2, 0.5)[0].tolist() == [0]


def test_a_tiny_temperature_is_arg_max() -> None:
    logits = np.array([1, 3, 2], dtype=np.float32)
    assert draw_token(logits, 5, how(temperature=1e-310, top_p=0.9), []) == 1
    assert draw_token(logits, 5, how(temperature=1e-310), []) == 1


def test_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    greedy = {"temperature": 0.0, "penalty": 2.0}
    assert draw_token(np.array([4, 3], dtype=np.float32), 0, how(**greedy), [0]) == 1
    assert draw_token(np.array([-1, -1.5], dtype=np.float32), 0, how(**greedy), [0]) == 1
    assert draw_token(np.array([4, 3], dtype=np.float32), 0, how(**greedy), [1, 1, 1]) == 0
    assert draw_token(np.array([4, 3], dtype=np.float32), 0, how(**greedy), []) == 0


def test_a_repeated_id_is_penalised_once() -> None:
    logits = np.array([4, 1.5], dtype=np.float32)
    assert draw_token(logits, 0, how(temperature=0.0, penalty=2.0), [0, 0, 0]) == 0


def test_the_penalty_comes_before_top_k() -> None:
    logits = np.array([4, 3, 2], dtype=np.float32)
    assert draw_token(logits, 0, how(penalty=10.0, top_k=1), [0]) == 1


def test_the_caller_keeps_its_logits() -> None:
    logits = np.array([4, 3, 2], dtype=np.float32)
    draw_token(logits, 0, how(penalty=2.0, top_p=0.9), [0])
    assert logits.tolist() == [4, 3, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_non_finite_logits_fail_the_slice(bad: float, temperature: float) -> None:
    logits = np.array([0, bad, 1], dtype=np.float32)
    with pytest.raises(SliceFailed, match="position 12") as caught:
        draw_token(logits, 12, how(temperature=temperature), [])
    assert caught.value.code == FaultCode.NON_FINITE
