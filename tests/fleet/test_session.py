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


@given(
    rounds=st.lists(st.tuples(IDS, st.lists(st.integers(0, 3), max_size=3), st.integers(0, 12)), max_size=12)
)
def test_a_list_that_is_only_appended_to_is_compared_where_it_is_new(
    rounds: list[tuple[list[int], list[int], int]],
) -> None:
    state, committed = ChainState(SessionId(1)), [0]
    for appended, drafts, cut in rounds:
        committed += appended
        state.truncate(min(cut, state.length) if cut % 4 == 0 else state.length)
        naive = min(common_prefix(list(state.held), list(committed)), len(committed) - 1)
        assert state.reusable(committed) == naive
        state.feed(naive, [*committed[naive:], *drafts])
        assert state.reusable(list(committed)) == len(committed) - 1  # another list: compared from its start


def test_a_fork_is_compared_anew() -> None:
    source, state, committed = ChainState(SessionId(1)), ChainState(SessionId(2)), [1, 2, 3, 4]
    source.feed(0, [1, 9])
    state.feed(0, [1, 2, 3])
    assert state.reusable(committed) == 3
    state.share(source, [1, 9])
    assert state.reusable(committed) == 1
