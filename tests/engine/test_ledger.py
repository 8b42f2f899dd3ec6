"""KvLedger against a list of booleans, over any sequence of operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.engine.ledger import KvLedger, reserved_cells, should_compact


class NaiveLedger:
    """One entry a physical cell: the logical position it holds, or None when it is dead."""

    def __init__(self) -> None:
        self.cells: list[int | None] = []

    @property
    def live(self) -> int:
        return sum(cell is not None for cell in self.cells)

    def append(self, rows: int) -> None:
        for _ in range(rows):
            self.cells.append(self.live)

    def truncate(self, length: int) -> int:
        before = self.live
        self.cells = [None if cell is None or cell >= length else cell for cell in self.cells]
        return before - self.live

    def plan(self) -> list[int]:
        where = {cell: index for index, cell in enumerate(self.cells) if cell is not None}
        return [where[position] for position in range(self.live)]

    def compact(self) -> None:
        self.cells = [cell for cell in self.cells if cell is not None]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 40)),
        st.tuples(st.just("truncate"), st.integers(0, 1000)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=40,
)


def _assert_same(ledger: KvLedger, naive: NaiveLedger) -> None:
    assert ledger.length == ledger.live == naive.live
    assert ledger.physical == len(naive.cells) == ledger.live + ledger.dead
    assert ledger.mask().tolist() == [int(cell is not None) for cell in naive.cells]
    assert ledger.mask().dtype == np.int64
    assert ledger.compaction_plan().tolist() == naive.plan()


@given(OPERATIONS, st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_any_sequence_equals_the_naive_model(operations: list[tuple[str, int]], capacity: int) -> None:
    ledger, naive = KvLedger(capacity), NaiveLedger()
    for name, number in operations:
        if name == "append":
            ledger.append(number)
            naive.append(number)
            expected = list(range(naive.live - number, naive.live))
            assert ledger.positions(number).tolist() == expected
        elif name == "truncate":
            length = number % (naive.live + 1)
            assert ledger.truncate(length) == naive.truncate(length)
        elif name == "compact":
            ledger.compacted()
            naive.compact()
        else:
            ledger.clear()
            naive.cells.clear()
        _assert_same(ledger, naive)


def test_rows_after_a_rollback_lie_behind_the_dead_cells() -> None:
    ledger = KvLedger()
    ledger.append(5)
    assert ledger.truncate(2) == 3
    ledger.append(2)
    assert ledger.mask().tolist() == [1, 1, 0, 0, 0, 1, 1]
    assert ledger.positions(2).tolist() == [2, 3]
    assert ledger.compaction_plan().tolist() == [0, 1, 5, 6]
    assert (ledger.live, ledger.dead, ledger.physical) == (4, 3, 7)


def test_the_mask_is_a_view_and_not_a_copy() -> None:
    ledger = KvLedger(64)
    ledger.append(10)
    view = ledger.mask()
    ledger.truncate(9)
    assert view.tolist() == [1] * 9 + [0]
    assert np.shares_memory(view, ledger.mask())


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_beyond_the_length_is_refused(length: int) -> None:
    ledger = KvLedger()
    ledger.append(3)
    with pytest.raises(ValueError, match="cannot truncate"):
        ledger.truncate(length)
    assert ledger.length == 3


def test_negative_append_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot append"):
        KvLedger().append(-1)


@pytest.mark.parametrize(
    ("live", "dead", "expected"),
    [
        (0, 128, False),
        (0, 129, True),
        (512, 128, False),
        (512, 129, True),
        (1000, 250, False),
        (1000, 251, True),
    ],
)
def test_compaction_rule(live: int, dead: int, expected: bool) -> None:
    assert should_compact(live, dead) is expected


@pytest.mark.parametrize(("context", "cells"), [(1, 257), (1024, 1280), (2048, 2560), (4097, 4097 + 1024)])
def test_reservation(context: int, cells: int) -> None:
    assert reserved_cells(context) == cells
