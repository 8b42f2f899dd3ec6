"""What a chain can do at most under delay, on made-up figures."""

from __future__ import annotations

import pytest

from fleetchat.bench.bound import Costs, Round, bound, costs_at, emitted_a_round, rounds_of
from fleetchat.fleet.telemetry import Answer, FinishReason, Speculation
from fleetchat.fleet.timeline import PassedBatch, Piece, WorkKind
from fleetchat.wire.frames import StageTiming


def passed(*pieces: Piece, compute_ms: tuple[float, float], queue_ms: float, seconds: float) -> PassedBatch:
    timings = (
        StageTiming(0, round(1000 * compute_ms[0]), 0, ()),
        StageTiming(round(1000 * queue_ms), round(1000 * compute_ms[1]), 0, ()),
    )
    return PassedBatch(pieces, 5.0, 5.0 + seconds, timings)


def test_queues_do_not_count_and_prefill_neither() -> None:
    decode, verify = Piece(1, 1, WorkKind.DECODE), Piece(2, 5, WorkKind.VERIFY)
    batches = [
        passed(decode, compute_ms=(8, 9), queue_ms=10, seconds=0.030),
        passed(decode, verify, compute_ms=(12, 10), queue_ms=0, seconds=0.025),
        passed(decode, Piece(3, 50, WorkKind.PREFILL), compute_ms=(60, 60), queue_ms=0, seconds=0.2),
    ]
    assert rounds_of(batches) == [
        Round(1, pytest.approx(0.020), 0.009),
        Round(3, pytest.approx(0.025), 0.006),
    ]


def test_costs_follow_the_rows() -> None:
    measured = [Round(1, 0.016, 0.008), Round(1, 0.018, 0.010), Round(5, 0.025, 0.013)]
    assert costs_at(measured, [1]) == Costs(pytest.approx(0.017), pytest.approx(0.009))
    assert costs_at(measured, [3]) == Costs(pytest.approx(0.021), pytest.approx(0.011))
    assert costs_at(measured, [1, 5]) == Costs(pytest.approx(0.021), pytest.approx(0.011))
    assert costs_at(measured, [9]) == Costs(pytest.approx(0.025), pytest.approx(0.013))
    with pytest.raises(ValueError, match="no round"):
        costs_at([], [1])


def test_tokens_a_round() -> None:
    def answer(tokens: int, rounds: int) -> Answer:
        speculation = Speculation(rounds=rounds)
        return Answer("", tuple(range(tokens)), FinishReason.STOP, 0, 1, 0, 1.0, 1.0, speculation)

    assert emitted_a_round([answer(30, 10), answer(10, 10)]) == 2.0
    with pytest.raises(ValueError, match="no round"):
        emitted_a_round([answer(0, 0)])


def test_the_bound_is_the_lower_of_network_and_stage() -> None:
    costs = Costs(traversal=0.017, slowest=0.009)
    assert bound(sessions=4, emitted=1.0, delay=0.05, legs=2, costs=costs) == pytest.approx(4 / 0.117)
    assert bound(sessions=8, emitted=2.0, delay=0.01, legs=2, costs=costs) == pytest.approx(2 / 0.009)
