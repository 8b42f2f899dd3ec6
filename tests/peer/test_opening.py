from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.engine.interface import EngineTraits
from fleetchat.ids import BuildKey
from fleetchat.peer.faults import ChainFault, error_frame
from fleetchat.peer.opening import check_engine, find_stage, granted_cells
from fleetchat.wire.frames import Error, FaultCode, WireDtype
from tests.peer.builders import BUILD, manifest, opening

OTHER = BuildKey("0123456789abcdef" * 4)


def refused(**changes: object) -> ChainFault:
    open_ = replace(opening(1, 2), **changes)  # type: ignore[arg-type]
    with pytest.raises(ChainFault) as caught:
        find_stage(open_, manifest(2), [])
    return caught.value


def test_the_entry_of_the_stage_is_found() -> None:
    assert find_stage(opening(1, 2), manifest(2), []).index == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vocabulary": 9}, "the vocabulary differs: the chat says 9, this peer says 259"),
        ({"hidden": 16}, "the hidden width differs: the chat says 16, this peer says 8"),
        ({"first_layer": 0}, "the layer range differs: the chat says (0, 1), this peer says (1, 1)"),
        ({"last_layer": 2}, "the layer range differs: the chat says (1, 2), this peer says (1, 1)"),
        ({"stages": 3}, "the number of stages differs: the chat says 3, this peer says 2"),
        ({"wire_dtype": WireDtype.F32}, "the wire dtype differs: the chat says f32, this peer says f16"),
        ({"precision": "exact"}, "the wire dtype differs: the chat says f16, this peer says f32"),
    ],
)
def test_a_mismatch_names_both_sides(changes: dict[str, object], text: str) -> None:
    if "stages" in changes:  # then it is no longer the last stage
        changes = {**changes, "next_address": opening(0, 2).next_address}
    fault = refused(**changes)
    assert (fault.code, fault.message) == (FaultCode.MISMATCH, text)
    assert fault.hint == "install the same fleetchat on both sides and build the shards again"


def test_large_activations_want_f32_on_the_wire() -> None:
    large = replace(manifest(), self_check=replace(manifest().self_check, largest_activation=4e4))
    with pytest.raises(ChainFault, match="the chat says f16, this peer says f32"):
        find_stage(opening(), large, [])
    assert find_stage(opening(wire_dtype=WireDtype.F32), large, []).index == 0


def test_another_build_of_the_same_model_is_named_with_the_remedy() -> None:
    with pytest.raises(ChainFault) as caught:
        find_stage(opening(1, 2), None, [manifest(3), manifest(2, build_key=OTHER)])
    fault = caught.value
    assert fault.code is FaultCode.BUILD_KEY
    assert fault.message == (
        "the chat has build bbbbbbbbbbbb of this model, "
        "this peer has build 0123456789ab (fake, made by none 1)"
    )
    assert fault.hint == (
        "install the same fleetchat on both sides, then: fleetchat shards build fake --stages 2"
    )


def test_a_peer_without_the_shard_says_what_it_has() -> None:
    with pytest.raises(ChainFault) as caught:
        find_stage(opening(1, 2), None, [manifest(3, build_key=OTHER)])
    fault = caught.value
    assert fault.code is FaultCode.NO_SHARD
    assert fault.message == (
        f"the chat wants a shard of build {BUILD[:12]}, this peer has fake in 3 (0123456789ab)"
    )
    assert fault.hint == "build it on the peer: fleetchat shards build RECIPE --stages 2"


def test_an_engine_that_is_not_served_is_refused() -> None:
    check_engine(opening(), ["masked"])
    text = "the KV engine differs: the chat says paged, this peer says masked"
    with pytest.raises(ChainFault, match=text) as caught:
        check_engine(opening(engine="paged"), ["masked"])
    assert (caught.value.code, caught.value.hint) == (FaultCode.ENGINE, "use --kv masked")


def traits(cells: int) -> EngineTraits:
    return EngineTraits("masked", 1, False, 1, cells)


@pytest.mark.parametrize(
    ("wanted", "budget", "granted", "expected"),
    [(500, 1000, 0, 500), (500, 1000, 500, 500), (500, 1000, 600, 400), (100, 1000, 900, 100), (1, 1, 0, 1)],
)
def test_a_grant_is_what_is_wanted_or_what_is_left(
    wanted: int, budget: int, granted: int, expected: int
) -> None:
    open_ = opening(cells_wanted=wanted)
    assert granted_cells(open_, manifest(), traits(budget), granted=granted) == expected


@pytest.mark.parametrize(("wanted", "granted"), [(500, 700), (100, 901), (1, 1000)])
def test_less_than_one_reservation_is_refused_with_both_numbers(wanted: int, granted: int) -> None:
    with pytest.raises(ChainFault) as caught:
        granted_cells(opening(cells_wanted=wanted), manifest(), traits(1000), granted=granted)
    needed = min(wanted, 320)
    assert caught.value.code is FaultCode.CELLS
    assert caught.value.message == (
        f"one session needs {needed} KV cells, this stage has {1000 - granted} left of 1000, "
        f"{granted} of them taken by other chains"
    )


def test_an_overdrawn_budget_grants_nothing() -> None:
    with pytest.raises(ChainFault, match="this stage has -5 left of 10"):
        granted_cells(opening(cells_wanted=1), manifest(), traits(10), granted=15)


@pytest.mark.parametrize(
    ("wanted", "granted", "expected"), [(1, 0, 32), (33, 0, 64), (640, 0, 320), (640, 256, 64), (20, 288, 32)]
)
def test_an_engine_with_blocks_grants_whole_blocks_and_keeps_none_for_dead_cells(
    wanted: int, granted: int, expected: int
) -> None:
    paged = EngineTraits("paged", 32, True, 32, 320)
    assert granted_cells(opening(cells_wanted=wanted), manifest(), paged, granted=granted) == expected


def test_an_engine_with_blocks_needs_room_for_one_context() -> None:
    paged = EngineTraits("paged", 32, True, 32, 320)
    with pytest.raises(ChainFault, match="one session needs 64 KV cells, this stage has 32 left of 320"):
        granted_cells(opening(cells_wanted=500), manifest(), paged, granted=288)


def test_a_fault_travels_with_its_hint() -> None:
    fault = ChainFault(FaultCode.CELLS, "too few", hint="more")
    assert error_frame(fault) == Error(FaultCode.CELLS, "too few", "more")
