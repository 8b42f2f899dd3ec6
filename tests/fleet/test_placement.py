"""Plans in numbers: who serves what, what is refused, when one machine alone is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.errors import InputError
from fleetchat.fleet.paper import Assumptions, paper_peers
from fleetchat.fleet.placement import KEPT_FREE, Load, PeerFacts, Plan, place, usable
from fleetchat.fleet.plan_table import plan_lines
from fleetchat.fleet.shapes import SHAPES

GB = 2**30
BIG = Load(SHAPES["llama-3.3-70b"])
SMALL = Load(SHAPES["smollm2-135m"])
FAST = PeerFacts("fast", 32 * GB, decode=1e-11, prefill=4e-12, round_trip=0.0005, bandwidth=1e8)
SLOW = replace(FAST, name="slow", decode=3e-11)


def ranges(plan: Plan) -> list[tuple[int, int, int]]:
    return [(stage.peer, stage.first, stage.last) for stage in plan.stages]


def test_seventy_billion_weights_go_onto_four_machines_of_32_gb() -> None:
    peers = paper_peers("4x32GB", Assumptions(), bits=4)
    plan = place(BIG, peers)
    assert [stage.peer for stage in plan.stages] == [0, 1, 2, 3]
    assert all(stage.memory <= usable(peers[stage.peer]) for stage in plan.stages)
    assert 0.5 < plan.one_conversation < 5
    assert plan.best_alone is None
    assert plan_lines(BIG, peers, plan)[-1] == (
        "no machine alone holds llama-3.3-70b: the chain is the way to run it"
    )


def test_they_do_not_go_onto_two_machines_of_16_gb() -> None:
    with pytest.raises(InputError) as caught:
        place(BIG, paper_peers("2x16GB", Assumptions(), bits=4))
    assert caught.value.message == (
        "the fleet is too small for llama-3.3-70b: it needs 47.0 GB (37.0 GB of weights at 4 bits x 1.2, and "
        "2.7 GB for 4 conversations of 4,096 tokens), and the peers may use 18.9 GB without their last 20%; "
        "28.1 GB are missing"
    )
    assert caught.value.hint == (
        "what each may use: pc1 9.6 GB (16 of 80 layers), pc2 9.6 GB (16 of 80 layers); add a peer, or lower "
        "--context, --conversations or --bits"
    )


def test_a_peer_that_is_three_times_slower_gets_a_third_of_the_layers() -> None:
    plan = place(replace(SMALL, shape=replace(SMALL.shape, vocabulary=1)), [FAST, SLOW])
    (_, _, last), (_, first, _) = ranges(plan)
    assert (last + 1, 30 - first) == (23, 7) or (last + 1, 30 - first) == (22, 8)


def test_a_peer_that_only_slows_the_chain_down_is_left_out() -> None:
    snail = replace(FAST, name="snail", decode=1e-9)
    plan = place(SMALL, [FAST, snail, FAST])
    assert [stage.peer for stage in plan.stages] == [0, 2]
    lines = plan_lines(SMALL, [FAST, snail, FAST], plan)
    assert "left out: snail (the chain is no slower without it)" in lines


def test_one_machine_alone_is_named_when_it_is_faster() -> None:
    plan = place(SMALL, [FAST, FAST])
    assert plan.best_alone == 0
    text = "\n".join(plan_lines(SMALL, [FAST, FAST], plan))
    assert "one machine alone is faster for one conversation: fast by itself gives " in text
    assert "4 conversations on the chain get " in text


def test_one_peer_needs_no_cut() -> None:
    plan = place(SMALL, [FAST])
    assert ranges(plan) == [(0, 0, 29)]
    assert plan_lines(SMALL, [FAST], plan)[-1] == (
        "fast holds the whole model: nothing is to be gained by cutting it"
    )


def test_a_full_pipeline_goes_at_the_pace_of_its_slowest_stage() -> None:
    plan = place(BIG, [replace(FAST, memory_free=64 * GB)] * 3)
    assert plan.together(100) == 1 / plan.slowest.decode
    assert plan.together(1) == plan.one_conversation


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3x", "'3x' is not of the form NxSIZE"),
        ("", "'' is not of the form NxSIZE"),
        ("4x32", "'4x32' is not of the form NxSIZE"),
        ("100x8GB", "a plan takes 1 to 64 peers, not 100"),
        ("0x8GB", "a plan takes 1 to 64 peers, not 0"),
    ],
)
def test_what_is_no_list_of_machines(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        paper_peers(text, Assumptions(), bits=4)


def test_machines_of_several_sizes() -> None:
    peers = paper_peers("2x16GB, 64 GiB,512MB", Assumptions(), bits=8)
    assert [peer.memory_free for peer in peers] == [12 * GB, 12 * GB, 60 * GB, 0]
    assert [peer.name for peer in peers] == ["pc1", "pc2", "pc3", "pc4"]


_speed = st.floats(1e-12, 1e-9)
_peers = st.lists(
    st.builds(
        PeerFacts,
        name=st.just("p"),
        memory_free=st.integers(0, 40 * GB),
        decode=_speed,
        prefill=_speed,
        round_trip=st.floats(0, 0.1),
        bandwidth=st.floats(1e6, 1e10),
    ),
    min_size=1,
    max_size=4,
)
_loads = st.builds(
    Load,
    st.sampled_from([SHAPES["qwen3-0.6b"], SHAPES["llama-3.1-8b"]]).map(
        lambda shape: replace(shape, layers=9)
    ),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([512, 8192]),
    st.integers(1, 8),
)


@settings(max_examples=60, deadline=None)
@given(_loads, _peers)
def test_every_layer_is_served_once_in_order_within_memory_and_no_cut_is_better(
    load: Load, peers: list[PeerFacts]
) -> None:
    try:
        plan = place(load, peers)
    except InputError:
        assert all(load.memory(0, load.shape.layers - 1) > usable(peer) for peer in peers)
        return
    served = [layer for stage in plan.stages for layer in range(stage.first, stage.last + 1)]
    assert served == list(range(load.shape.layers))
    assert [stage.peer for stage in plan.stages] == sorted({stage.peer for stage in plan.stages})
    for stage in plan.stages:
        assert stage.memory <= (1 - KEPT_FREE) * peers[stage.peer].memory_free
    for number, peer in enumerate(peers):
        if load.memory(0, load.shape.layers - 1) <= usable(peer):
            alone = place(load, [peer])
            assert plan.slowest.decode <= alone.slowest.decode
            assert plan.alone[number] is not None
