"""Fewer batches share the chain where that is measured to be faster, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.fleet.batching import ChainLimits, Load, Pace, batches_wanted
from fleetchat.fleet.overlap import BETTER, KEPT, LEAST_BATCHES, OverlapKeeper
from fleetchat.fleet.simulate import SimulatedChain, SimulatedSession, Simulation, simulate, together

LIMITS = ChainLimits(stages=2, window=32, sessions_per_batch=16, max_rows=512, max_slices=64)
PACE = Pace(traversal=0.02, slowest_stage=0.01)
STREAMS = (2, 3, 4, 8)


class Machine:
    """A chain that gives `rates[n]` tokens a second with n batches in it, whatever their size."""

    def __init__(self, rates: dict[int, float], streaming: int = 2, limits: ChainLimits = LIMITS) -> None:
        self.rates = rates
        self.load = Load(streaming=streaming)
        self.limits = limits
        self.keeper = OverlapKeeper()
        self.now = 100.0
        self.spent: dict[int, float] = {}

    @property
    def batches(self) -> int:
        return batches_wanted(self.limits, self.keeper.capped(self.load, self.limits, PACE), PACE)

    def run(self, seconds: float, *, told: bool = True) -> None:
        """Batches come back one by one. Not `told`: a prefill is in the chain."""
        end = self.now + seconds
        while self.now < end:
            batches = self.batches
            tokens = self.load.streaming / batches
            took = tokens / self.rates[batches]
            self.now += took
            self.spent[batches] = self.spent.get(batches, 0.0) + took
            self.keeper.note(self.now, self.load, self.limits, PACE, tokens if told else None)


@pytest.mark.parametrize("streaming", STREAMS)
def test_one_batch_is_chosen_where_it_is_faster(streaming: int) -> None:
    machine = Machine({1: 110.0, 2: 100.0}, streaming)
    assert machine.batches == 2
    machine.run(10)
    assert machine.batches == 1


@pytest.mark.parametrize("streaming", STREAMS)
def test_one_batch_a_stage_stays_where_it_is_faster_and_trying_costs_little(streaming: int) -> None:
    machine = Machine({1: 60.0, 2: 100.0}, streaming)
    machine.run(10)
    machine.spent.clear()
    machine.run(600)
    assert machine.batches == 2
    assert 0 < machine.spent[1] < 0.02 * 600


def test_less_than_three_per_cent_is_noise() -> None:
    machine = Machine({1: 100.0 * (BETTER - 0.001), 2: 100.0})
    machine.run(600)
    assert machine.batches == 2
    assert machine.spent[1] > 0


def test_the_choice_follows_the_machine() -> None:
    machine = Machine({1: 110.0, 2: 100.0})
    machine.run(10)
    machine.rates = {1: 60.0, 2: 100.0}  # the stages have moved to machines of their own, say
    machine.run(130)
    assert machine.batches == 2


def test_many_batches_are_halved_before_they_are_one() -> None:
    limits = replace(LIMITS, stages=5)
    machine = Machine({5: 100.0, 3: 110.0, 1: 90.0}, 8, limits)
    assert machine.batches == 5
    machine.run(60)
    assert machine.batches == 3
    machine = Machine({5: 100.0, 3: 90.0, 1: 110.0}, 8, limits)
    machine.run(120)
    assert machine.batches == 1


def test_nothing_is_tried_while_prefills_come_and_go() -> None:
    machine = Machine({1: 200.0, 2: 100.0})
    for _ in range(200):
        machine.run(0.1)
        machine.run(0.02, told=False)
    assert machine.spent.keys() == {2}
    machine.run(10)
    assert machine.batches == 1


def test_a_window_that_was_cut_short_does_not_stay_with_what_it_tried() -> None:
    machine = Machine({1: 110.0, 2: 100.0})
    while machine.batches == 2:
        machine.run(0.01)
    machine.run(0.05, told=False)
    machine.run(0.01)
    assert machine.batches == 2


def test_loads_are_told_apart() -> None:
    machine = Machine({1: 110.0, 2: 100.0})
    machine.run(10)
    machine.load = Load(streaming=4)
    assert machine.batches == 2
    machine.load = Load(streaming=2)
    assert machine.batches == 1


def test_a_prefill_has_the_chain_as_before() -> None:
    machine = Machine({1: 110.0, 2: 100.0})
    machine.run(10)
    prefilling = Load(streaming=2, prefilling=1)
    assert machine.keeper.capped(prefilling, LIMITS, PACE) == prefilling
    most = replace(prefilling, most=1)
    assert batches_wanted(LIMITS, most, PACE) == batches_wanted(LIMITS, prefilling, PACE)


@pytest.mark.parametrize(
    ("limits", "streaming"), [(replace(LIMITS, sessions_per_batch=1), 4), (LIMITS, 1), (LIMITS, 0)]
)
def test_where_nothing_can_be_shared_nothing_is_tried(limits: ChainLimits, streaming: int) -> None:
    load = Load(streaming=streaming)
    keeper = OverlapKeeper()
    for step in range(10_000):
        keeper.note(step * 0.01, load, limits, PACE, 1)
        assert keeper.capped(load, limits, PACE) == load


def test_what_is_remembered_is_bounded() -> None:
    keeper = OverlapKeeper()
    for streaming in range(2, 3 * KEPT):
        for step in range(LEAST_BATCHES):
            keeper.note(streaming + step / 100, Load(streaming=streaming), LIMITS, PACE, 1)
    assert len(keeper._choices) == KEPT


def streamed(chain: SimulatedChain, sessions: int, seconds: float = 30.0) -> Simulation:
    streams = [SimulatedSession(0.0, 4, 1_000_000) for _ in range(sessions)]
    return simulate(chain, streams, seconds=seconds)


def test_stages_on_one_machine_get_larger_batches_and_stages_apart_do_not() -> None:
    """Two stages of 7 ms and 1 ms a row; together on one machine they take half as long again."""
    stage = together(0.007, 0.0004)
    apart = SimulatedChain((stage, stage), (0.0005, 0.0005, 0.0005), sessions_per_batch=16)
    crowded = replace(apart, crowding=0.5)
    assert len(streamed(apart, 4).passages[-1].shares) == 2
    found = streamed(crowded, 4)
    assert len(found.passages[-1].shares) == 4
    assert found.tokens_per_s(20, 30) > 1.2 * found.tokens_per_s(0.2, 1.5)
    assert found.fairness(range(4), 0, 30) > 0.999
