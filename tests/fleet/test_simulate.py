"""The batch former over whole runs in virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleetchat.fleet.simulate import (
    SimulatedChain,
    SimulatedSession,
    Simulation,
    one_by_one,
    simulate,
    together,
)

MS = 1e-3
FOREVER = 10**6  # tokens


def chain(
    delay: float = 0.0, *, jitter: float = 0.0, row: float = 0.6 * MS, shared: bool = False
) -> SimulatedChain:
    """Two stages like those of the default model; `delay` on two of the three legs."""
    cost = together if shared else one_by_one
    return SimulatedChain(
        stages=(cost(7.5 * MS, row), cost(8.7 * MS, 0.7 * row)),
        legs=(0.15 * MS, delay + 0.15 * MS, delay + 0.15 * MS),
        turnaround=0.3 * MS,
        jitter=jitter,
        sessions_per_batch=256 if shared else 1,
    )


def streams(count: int) -> list[SimulatedSession]:
    return [SimulatedSession(0.001 * number, 5, FOREVER) for number in range(count)]


def prefill_seconds(simulation: Simulation, session: int, arrived: float) -> float:
    return simulation.token_times[session][0] - arrived


@pytest.mark.parametrize("sessions", [2, 4, 8])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_the_slowest_stage_is_never_idle_without_delay(sessions: int, jitter: float) -> None:
    simulation = simulate(chain(jitter=jitter), streams(sessions), seconds=12.0)
    busy = simulation.utilisation(2.0, 11.5)
    assert busy[1] >= (0.995 if sessions > 2 or not jitter else 0.97)
    assert simulation.fairness(range(sessions), 2.0, 11.5) > 0.999


@pytest.mark.parametrize("delay", [10 * MS, 50 * MS, 100 * MS])
@pytest.mark.parametrize("sessions", [1, 2, 4, 8])
def test_delay_is_overlapped_up_to_the_bound(delay: float, sessions: int) -> None:
    simulation = simulate(chain(delay), streams(sessions), seconds=22.0)
    traversal = (7.5 + 8.7 + 0.45) * MS
    bound = min(sessions / (2 * delay + traversal), 1 / (8.7 * MS))
    assert simulation.tokens_per_s(2.0, 21.5) >= 0.98 * bound
    assert simulation.max_in_flight <= sessions


def test_sessions_that_share_a_pass_form_even_batches() -> None:
    """A round of 8 takes the traversal of a batch of two: 4 batches fit between, 5 smaller ones cost more."""
    simulation = simulate(chain(10 * MS, shared=True), streams(8), seconds=12.0)
    assert simulation.tokens_per_s(4.0, 11.5) > 200
    sizes = Counter(len(one.shares) for one in simulation.passages if one.sent > 4.0)
    assert sizes[2] > 0.98 * sizes.total()  # the others try whether larger ones would bring more


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("delay", [0.0, 50 * MS])
@pytest.mark.parametrize("row", [0.3 * MS, 1.2 * MS])
@pytest.mark.parametrize("others", [1, 4])
def test_a_long_prompt_stretches_the_gaps_of_others_at_most_threefold(
    shared: bool, delay: float, row: float, others: int
) -> None:
    setting = chain(delay, jitter=0.05, row=row, shared=shared)
    simulation = simulate(setting, [*streams(others), SimulatedSession(3.0, 2000, 5)], seconds=60.0)
    end = simulation.token_times[others][0]
    for session in range(others):
        before, during = simulation.gaps(session, 1.0, 3.0), simulation.gaps(session, 3.0, end)
        assert during.count >= 5
        assert during.p95 <= 3 * before.p50


def test_so_does_one_on_an_engine_that_is_slow_at_chunks() -> None:
    """The masked engine over 1,000 cells: one row takes 11 ms, a chunk 12 ms and 3.4 ms a row."""

    def cost(rows: Sequence[int]) -> float:
        return sum(11 * MS if one == 1 else 12 * MS + 3.4 * MS * one for one in rows)

    for others in (1, 3):
        slow = replace(chain(jitter=0.05), stages=(cost, cost))
        simulation = simulate(slow, [*streams(others), SimulatedSession(3.0, 1000, 5)], seconds=60.0)
        before = simulation.gaps(0, 1.0, 3.0)
        during = simulation.gaps(0, 3.0, simulation.token_times[others][0])
        assert during.p95 <= 3 * before.p50
        assert prefill_seconds(simulation, others, 3.0) < 18.0


def test_several_long_prompts_cost_the_others_no_more_than_one() -> None:
    simulation = simulate(chain(), [*streams(2), *[SimulatedSession(3.0, 1000, 5)] * 4], seconds=60.0)
    before, during = simulation.gaps(0, 1.0, 3.0), simulation.gaps(0, 4.0, 6.0)
    assert during.p95 <= 3 * before.p50
    assert all(simulation.token_times[session] for session in range(6))


def test_the_focused_prompt_is_read_first() -> None:
    prompts = [SimulatedSession(3.0, 800, 5), SimulatedSession(3.2, 800, 5, focused=True)]
    simulation = simulate(chain(), [*streams(1), *prompts], seconds=60.0)
    assert simulation.token_times[2][0] < simulation.token_times[1][0]


def test_a_prompt_alone_keeps_both_stages_busy_where_chunks_are_cheap() -> None:
    """15 of 16 chunks overlap: 1.67 is the limit of stages whose rows cost 10 and 7."""
    alone = [SimulatedSession(0.0, 2048, 1)]
    pieces = simulate(chain(shared=True), alone, seconds=60.0)
    whole = simulate(chain(), alone, seconds=60.0)
    assert prefill_seconds(whole, 0, 0.0) / prefill_seconds(pieces, 0, 0.0) > 1.4


def test_a_prompt_alone_is_read_in_one_piece() -> None:
    simulation = simulate(chain(), [SimulatedSession(0.0, 2000, 3)], seconds=60.0)
    assert simulation.passages[0].shares[0].rows == 2000


@settings(max_examples=60, deadline=None)
@given(
    seed=some.integers(0, 2**32),
    count=some.integers(1, 12),
    shared=some.booleans(),
    delay=some.sampled_from([0.0, 0.01, 0.05]),
)
def test_nobody_starves_and_nothing_is_out_of_order(
    seed: int, count: int, shared: bool, delay: float
) -> None:
    random = Random(seed)
    sessions = [
        SimulatedSession(
            arrives=random.uniform(0, 1.5),
            prompt=random.choice([1, 5, 20, 100, 600]),
            tokens=random.randint(1, 30),
            rows=random.randint(1, 4),
            focused=random.random() < 0.1,
        )
        for _ in range(count)
    ]
    setting = chain(delay, jitter=0.1, shared=shared)
    simulation = simulate(setting, sessions, seconds=600.0, seed=seed)
    for number, session in enumerate(sessions):
        assert simulation.tokens[number] == session.tokens, "everybody is served to the end"
    assert _rows_by_session(simulation) == {
        number: session.prompt + session.rows * (session.tokens - 1)
        for number, session in enumerate(sessions)
    }
    for earlier, later in pairwise(simulation.passages):  # FIFO everywhere, so also within a session
        assert earlier.returned <= later.returned
        assert all(a[2] <= b[1] for a, b in zip(earlier.stages, later.stages, strict=True))
    slowest = 0.6 * MS * 600 + 20 * MS
    prompts = sum(session.prompt >= 17 for session in sessions)
    bound = 2 * delay + 3 * slowest + prompts * 2 * slowest + count * 60 * MS
    for number, session in enumerate(sessions):
        if session.prompt < 17:
            assert simulation.longest_wait(number) <= bound
    assert simulation.max_in_flight <= setting.window


def _rows_by_session(simulation: Simulation) -> dict[int, int]:
    rows: dict[int, int] = defaultdict(int)
    for passage in simulation.passages:
        for share in passage.shares:
            rows[share.session] += share.rows
    return dict(rows)
