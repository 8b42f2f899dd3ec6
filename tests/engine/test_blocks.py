"""The block manager against a model that keeps the content of every cell: nothing leaks, nothing mixes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fleetchat.engine.blocks import BlockCopy, BlockManager, BlockPool, OutOfBlocks

BLOCK = 4


def manager(capacity: int = 8, limit: int | None = None) -> BlockManager[str]:
    return BlockManager(BlockPool(capacity), BLOCK, limit=limit)


def test_cells_fill_blocks_in_order() -> None:
    blocks = manager()
    assert blocks.append("a", 5) == []
    assert blocks.table("a") == [0, 1]
    blocks.append("b", 1)
    blocks.append("a", 4)
    assert (blocks.table("a"), blocks.table("b")) == ([0, 1, 3], [2])
    assert (blocks.length("a"), blocks.held, blocks.available) == (9, 4, 4)


def test_an_unknown_session_is_empty() -> None:
    blocks = manager()
    assert (blocks.length("a"), list(blocks.table("a")), blocks.sessions()) == (0, [], [])
    assert blocks.truncate("a", 0) == 0
    blocks.free("a")


def test_a_truncation_gives_back_whole_blocks_only() -> None:
    blocks = manager()
    blocks.append("a", 10)
    assert blocks.truncate("a", 5) == 5
    assert (blocks.table("a"), blocks.held) == ([0, 1], 2)
    blocks.append("b", 1)
    assert blocks.table("b") == [2]


def test_the_lowest_free_block_is_taken_first() -> None:
    pool = BlockPool(8)
    blocks = BlockManager[str](pool, BLOCK)
    for name in "abc":
        blocks.append(name, BLOCK)
    blocks.free("b")
    blocks.free("a")
    blocks.append("d", 2 * BLOCK)
    assert blocks.table("d") == [0, 1]
    assert pool.reach == 3


def test_a_fork_takes_nothing_and_the_first_to_write_gets_the_copy() -> None:
    blocks = manager()
    blocks.append("a", 6)
    blocks.fork("b", "a", 6)
    assert (blocks.table("b"), blocks.held) == ([0, 1], 2)
    assert blocks.append("b", 1) == [BlockCopy(1, 2)]
    assert blocks.append("a", 1) == []
    assert (blocks.table("a"), blocks.table("b"), blocks.held) == ([0, 1], [0, 2], 3)


def test_a_fork_of_whole_blocks_copies_nothing() -> None:
    blocks = manager()
    blocks.append("a", 8)
    blocks.fork("b", "a", 4)
    assert blocks.append("b", 1) == []
    assert blocks.table("b") == [0, 2]


def test_the_source_copies_when_it_goes_back_into_a_shared_block() -> None:
    blocks = manager()
    blocks.append("a", 8)
    blocks.fork("b", "a", 8)
    blocks.truncate("a", 6)
    assert blocks.append("a", 1) == [BlockCopy(1, 2)]
    assert blocks.table("b") == [0, 1]


def test_shared_blocks_live_as_long_as_their_last_holder() -> None:
    blocks = manager()
    blocks.append("a", 8)
    blocks.fork("b", "a", 8)
    blocks.free("a")
    assert (blocks.held, blocks.available) == (2, 6)
    blocks.free("b")
    assert (blocks.held, blocks.available) == (0, 8)


def test_an_overflow_changes_nothing() -> None:
    blocks = manager(capacity=2)
    blocks.append("a", 5)
    with pytest.raises(OutOfBlocks, match="1 more blocks are wanted, 0 are left"):
        blocks.append("a", 4)
    assert (blocks.length("a"), blocks.table("a")) == (5, [0, 1])
    with pytest.raises(OutOfBlocks):
        blocks.append("b", 1)
    assert blocks.sessions() == ["a"]


def test_a_shared_partial_block_counts_in_the_shortage() -> None:
    blocks = manager(capacity=2)
    blocks.append("a", 6)
    blocks.fork("b", "a", 6)
    assert blocks.shortage("b", 6, 1) == 1
    assert blocks.shortage("b", 4, 1) == 1  # block 1 is dropped, but its other holder keeps it
    blocks.truncate("a", 4)
    assert blocks.shortage("b", 4, 1) == 0


def test_cells_that_a_rollback_frees_count_as_available() -> None:
    blocks = manager(capacity=2)
    blocks.append("a", 8)
    assert blocks.shortage("a", 8, 1) == 1
    assert blocks.shortage("a", 2, 6) == 0
    assert blocks.shortage("a", 2, 7) == 1


def test_a_limit_binds_one_chain_and_not_the_other() -> None:
    pool = BlockPool(8)
    one, two = BlockManager[str](pool, BLOCK, limit=2), BlockManager[str](pool, BLOCK, limit=6)
    one.append("a", 8)
    assert (one.available, two.available) == (0, 6)
    assert one.shortage("a", 8, 1) == 1
    two.append("a", 24)
    assert (two.held, pool.free) == (6, 0)


@pytest.mark.parametrize("length", [-1, 7])
def test_impossible_lengths(length: int) -> None:
    blocks = manager()
    blocks.append("a", 6)
    with pytest.raises(ValueError, match="6"):
        blocks.truncate("a", length)
    with pytest.raises(ValueError, match="6"):
        blocks.fork("b", "a", length)
    assert blocks.sessions() == ["a"]


def test_a_fork_needs_an_unused_name() -> None:
    blocks = manager()
    blocks.append("a", 6)
    with pytest.raises(ValueError, match="exists"):
        blocks.fork("a", "a", 3)


NAMES = st.sampled_from("abcdef")


class AgainstCells(RuleBasedStateMachine):
    """The naive model: each session is a list of values; memory is what the tables say it is.

    Every append writes values that were never written before, so a cell that is written through a
    shared block, or not copied, shows in another session's content.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.blocks = BlockManager[str](self.pool, BLOCK, limit=10)
        self.memory = {block: [-1] * BLOCK for block in range(12)}
        self.content: dict[str, list[int]] = {}
        self.written = 0

    @rule(name=NAMES, rows=st.integers(0, 14), back=st.integers(0, 9))
    def run(self, name: str, rows: int, back: int) -> None:
        """What an engine does with a slice: all of it, or nothing."""
        content = self.content.get(name, [])
        first = max(0, len(content) - back)
        others = {other: cells for other, cells in self.content.items() if other != name}
        before = (self.blocks.held, list(self.blocks.table(name)))
        if self.blocks.shortage(name, first, rows):
            assert (self.blocks.held, list(self.blocks.table(name))) == before
            assert self._least_blocks(others, name, first, rows) > 10
            return
        assert self.blocks.truncate(name, first) == len(content) - first
        for copy in self.blocks.append(name, rows):
            self.memory[copy.target] = list(self.memory[copy.source])
        del content[first:]
        for position in range(first, first + rows):
            block = self.blocks.table(name)[position // BLOCK]
            assert self.pool.holders(block) == 1, "a shared block is written"
            self.written += 1
            self.memory[block][position % BLOCK] = self.written
            content.append(self.written)
        self.content[name] = content

    def _least_blocks(self, others: dict[str, list[int]], name: str, first: int, rows: int) -> int:
        """Distinct blocks if the slice had been run: those of the others, those kept, and fresh ones."""
        held = {block for other in others for block in self.blocks.table(other)}
        full = first // BLOCK
        partial = self.blocks.table(name)[full : full + 1] if first % BLOCK else []
        kept = set(self.blocks.table(name)[:full]) | (set(partial) - held)
        fresh = -(-(first + rows) // BLOCK) - full - len(set(partial) - held)
        return len(held | kept) + fresh

    @rule(name=NAMES, length=st.integers(0, 40))
    def truncate(self, name: str, length: int) -> None:
        content = self.content.get(name, [])
        length = min(length, len(content))
        assert self.blocks.truncate(name, length) == len(content) - length
        del content[length:]

    @precondition(lambda self: self.content)
    @rule(new=NAMES, data=st.data())
    def fork(self, new: str, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.content)))
        length = data.draw(st.integers(0, len(self.content[source])))
        if new in self.content:
            with pytest.raises(ValueError, match="exists"):
                self.blocks.fork(new, source, length)
            return
        held = self.blocks.held
        self.blocks.fork(new, source, length)
        assert self.blocks.held == held
        self.content[new] = self.content[source][:length]

    @rule(name=NAMES)
    def free(self, name: str) -> None:
        self.blocks.free(name)
        self.content.pop(name, None)

    @invariant()
    def every_session_has_its_cells(self) -> None:
        assert sorted(self.blocks.sessions()) == sorted(self.content)
        for name, content in self.content.items():
            table = self.blocks.table(name)
            assert len(table) == -(-len(content) // BLOCK)
            cells = [cell for block in table for cell in self.memory[block]]
            assert cells[: len(content)] == content

    @invariant()
    def no_block_is_lost_or_held_twice(self) -> None:
        tables = [self.blocks.table(name) for name in self.blocks.sessions()]
        for block in range(self.pool.capacity):
            assert self.pool.holders(block) == sum(table.count(block) for table in tables)
        distinct = self.blocks.distinct(self.blocks.sessions())
        assert self.blocks.held == distinct == self.pool.capacity - self.pool.free <= 10


AgainstCells.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestAgainstCells = AgainstCells.TestCase
