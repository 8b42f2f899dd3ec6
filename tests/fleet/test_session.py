"""What the chain holds of a session, against a naive model of a stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetchat.fleet.session import ChainState, common_prefix
from fleetchat.ids import SessionId

IDS = st.lists(st.integers(0, 3), max_size=12)


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 9, 3], 1), ([1], [1, 2], 1)],
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == length


@given(turns=st.lists(IDS.filter(bool), min_size=1, max_size=6))
def test_each_turn_feeds_the_least_and_leaves_the_chain_with_exactly_its_ids(turns: list[list[int]]) -> None:
    state = ChainState(SessionId(1))
    stage: list[int] = []
    fed = 0
    for turn in turns:
        first = state.reusable(turn)
        assert first < len(turn)
        assert stage[:first] == turn[:first]
        rollback = state.feed(first, turn[first:])
        assert rollback == len(stage) - first
        del stage[first:]
        stage += turn[first:]
        fed = (fed if first else 0) + len(turn) - first  # a session that starts at 0 starts anew
        assert state.held == stage == turn
        assert state.physical == fed


def test_the_whole_history_cached_still_feeds_its_last_row() -> None:
    state = ChainState(SessionId(1))
    state.feed(0, [5, 6, 7])
    assert state.reusable([5, 6, 7]) == 2
    assert state.reusable([5, 6, 7, 8]) == 3


def test_truncating_keeps_the_cells_taken() -> None:
    state = ChainState(SessionId(1))
    state.feed(0, [5, 6, 7])
    state.truncate(1)
    assert (state.length, state.physical) == (1, 3)


def test_a_gap_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="a gap: first 2 lies beyond the length 0"):
        ChainState(SessionId(1)).feed(2, [1])
