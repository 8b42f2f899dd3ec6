"""Which KV blocks belong to which session. Pure: numbers of blocks, no tensors.

A session's cells lie in blocks of a fixed size; its table lists them in logical order. Sessions that
were forked share blocks. A shared block is never written: whoever writes into one gets a copy first
(copy on write), and the caller is told which block to copy where.

A `BlockPool` has the blocks of one engine, a `BlockManager` the sessions of one chain. The coordinator
runs a manager of its own over the least capacity of all stages, and so knows what every stage holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

Session = TypeVar("Session", bound=Hashable)


class BlockCopy(NamedTuple):
    """The caller copies the whole block `source` over `target` before it writes any cell."""

    source: int
    target: int


class OutOfBlocks(ValueError):
    """`wanted` more blocks were needed, `available` could be had."""

    def __init__(self, wanted: int, available: int) -> None:
        super().__init__(f"{wanted} more blocks are wanted, {available} are left")
        self.wanted = wanted
        self.available = available


class BlockPool:
    """Blocks 0 … capacity - 1, each free or held by a number of sessions.

    The lowest free block is taken first, so the blocks in use stay together and memory behind `reach` is
    never touched.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a pool needs at least one block, not {capacity}")
        self.capacity = capacity
        self._holders: dict[int, int] = {}
        self._freed: list[int] = []  # heap of blocks below `_fresh`
        self._fresh = 0  # blocks from here on have never been taken

    @property
    def free(self) -> int:
        return self.capacity - len(self._holders)

    @property
    def reach(self) -> int:
        """One more than the highest block that was ever taken."""
        return self._fresh

    def take(self) -> int:
        """A free block. Raises OutOfBlocks."""
        if self._freed:
            block = heapq.heappop(self._freed)
        elif self._fresh < self.capacity:
            block, self._fresh = self._fresh, self._fresh + 1
        else:
            raise OutOfBlocks(1, 0)
        self._holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more session holds a block that is held already."""
        self._holders[block] += 1

    def drop(self, block: int) -> bool:
        """One session less holds the block; True when it is free now."""
        left = self._holders[block] - 1
        if left:
            self._holders[block] = left
            return False
        del self._holders[block]
        heapq.heappush(self._freed, block)
        return True

    def holders(self, block: int) -> int:
        """Sessions that hold the block; 0 when it is free."""
        return self._holders.get(block, 0)


class _Table:
    """`blocks` are exactly those that `length` cells need."""

    __slots__ = ("blocks", "length")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.length = 0


class BlockManager(Generic[Session]):
    """The sessions of one chain, with at most `limit` blocks of the pool together (None = all of them)."""

    def __init__(self, pool: BlockPool, block_size: int, *, limit: int | None = None) -> None:
        if block_size < 1:
            raise ValueError(f"a block has at least one cell, not {block_size}")
        self.block_size = block_size
        self.limit = limit
        self._pool = pool
        self._tables: dict[Session, _Table] = {}
        self._held = 0

    @property
    def held(self) -> int:
        """Blocks that the sessions hold, a shared one counted once."""
        return self._held

    @property
    def available(self) -> int:
        """Blocks that could be taken now."""
        if self.limit is None:
            return self._pool.free
        return max(0, min(self._pool.free, self.limit - self._held))

    def sessions(self) -> list[Session]:
        return list(self._tables)

    def length(self, session: Session) -> int:
        """Cells of a session; 0 when unknown."""
        table = self._tables.get(session)
        return table.length if table else 0

    def table(self, session: Session) -> Sequence[int]:
        """The session's blocks in logical order; valid until it changes."""
        table = self._tables.get(session)
        return table.blocks if table else ()

    def blocks_for(self, cells: int) -> int:
        """Blocks that so many cells need."""
        return -(-cells // self.block_size)

    def distinct(self, sessions: Iterable[Session]) -> int:
        """Blocks that these sessions hold, a shared one counted once."""
        return len({block for session in sessions for block in self.table(session)})

    def shares_last(self, session: Session) -> bool:
        """Whether the session's last block is held by others too."""
        blocks = self.table(session)
        return bool(blocks) and self._pool.holders(blocks[-1]) > 1

    def shortage(self, session: Session, first: int, rows: int) -> int:
        """Blocks that are lacking to truncate the session to `first` and append `rows`; 0 when it fits."""
        blocks = self.table(session)
        kept = self.blocks_for(min(first, self.length(session)))
        needed = self.blocks_for(first + rows) - kept
        if rows and first % self.block_size and self._pool.holders(blocks[kept - 1]) > 1:
            needed += 1  # the partial block is shared: it is copied
        if needed <= self.available:
            return 0
        freed = sum(1 for block in blocks[kept:] if self._pool.holders(block) == 1)
        return max(0, needed - self.available - freed)

    def append(self, session: Session, rows: int) -> list[BlockCopy]:
        """Give the session `rows` more cells; copy the blocks that are returned before writing them.

        Raises OutOfBlocks, and then nothing has changed.
        """
        if rows < 0:
            raise ValueError(f"cannot append {rows} rows")
        lacking = self.shortage(session, self.length(session), rows)
        if lacking:
            raise OutOfBlocks(self.available + lacking, self.available)
        table = self._tables.setdefault(session, _Table())
        copies = self._unshare_last(table) if rows and table.length % self.block_size else []
        table.length += rows
        while len(table.blocks) * self.block_size < table.length:
            table.blocks.append(self._take())
        return copies

    def truncate(self, session: Session, length: int) -> int:
        """Give back the cells at positions >= `length`; returns how many there were."""
        table = self._tables.get(session)
        held = table.length if table else 0
        if not 0 <= length <= held:
            raise ValueError(f"cannot truncate {held} cells to {length}")
        if table is None or length == held:
            return 0
        kept = self.blocks_for(length)
        for block in table.blocks[kept:]:
            self._drop(block)
        del table.blocks[kept:]
        table.length = length
        return held - length

    def fork(self, new: Session, source: Session, length: int) -> None:
        """Let `new` begin with the first `length` cells of `source`. Takes no block.

        Raises ValueError when `new` exists, or `source` is shorter than that.
        """
        if new in self._tables:
            raise ValueError(f"{new} exists already")
        if not 0 <= length <= self.length(source):
            raise ValueError(f"cannot fork {length} cells of {self.length(source)}")
        table = self._tables[new] = _Table()
        table.length = length
        table.blocks = list(self.table(source)[: self.blocks_for(length)])
        for block in table.blocks:
            self._pool.share(block)

    def free(self, session: Session) -> None:
        """Give back all cells of a session. Unknown sessions are ignored."""
        table = self._tables.pop(session, None)
        for block in table.blocks if table else ():
            self._drop(block)

    def _unshare_last(self, table: _Table) -> list[BlockCopy]:
        shared = table.blocks[-1]
        if self._pool.holders(shared) == 1:
            return []
        table.blocks[-1] = self._take()
        self._drop(shared)
        return [BlockCopy(shared, table.blocks[-1])]

    def _take(self) -> int:
        block = self._pool.take()
        self._held += 1
        return block

    def _drop(self, block: int) -> None:
        if self._pool.drop(block):
            self._held -= 1
