"""Which cells of one session are live. Pure: ints and two number lines, no tensors of a model.

A *cell* is a physical slot of the KV cache. New rows always take the next physical cells. A rollback
hides cells instead of moving any: a hidden cell is *dead*, stays where it is, and costs attention time
and memory until the session is compacted. So live cells lie in order of their logical positions, with
dead ones anywhere between them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COMPACT_ABOVE = 128  # dead cells that are never worth a copy
COMPACT_FRACTION = 4  # beyond them, a quarter of the live cells is
RESERVE_AT_LEAST = 256  # cells kept for dead ones, so that a turn seldom has to compact in its middle
RESERVE_FRACTION = 4


def should_compact(live: int, dead: int) -> bool:
    """Whether the dead cells of a session cost more than getting rid of them, at the end of a turn."""
    return dead > max(COMPACT_ABOVE, live / COMPACT_FRACTION)


def reserved_cells(context: int) -> int:
    """Most physical cells that one session may hold: its context, and room for dead cells."""
    return context + max(RESERVE_AT_LEAST, context // RESERVE_FRACTION)


class KvLedger:
    """The cells of one session: `append`, `truncate`, and the numbers that follow from them.

    Two int64 buffers grow by doubling: the attention mask over physical cells (1 = live), and the
    physical cell of each live logical position. Appending n rows and hiding n cells cost O(n),
    whatever the length of the context.
    """

    def __init__(self, capacity: int = 256) -> None:
        self._mask = np.zeros(capacity, dtype=np.int64)
        self._cells = np.zeros(capacity, dtype=np.int64)
        self._physical = 0
        self._live = 0

    @property
    def length(self) -> int:
        """Logical length; equal to the number of live cells."""
        return self._live

    @property
    def live(self) -> int:
        return self._live

    @property
    def dead(self) -> int:
        return self._physical - self._live

    @property
    def physical(self) -> int:
        return self._physical

    def append(self, rows: int) -> None:
        """Give the next `rows` logical positions the next `rows` physical cells."""
        if rows < 0:
            raise ValueError(f"cannot append {rows} rows")
        physical, live = self._physical + rows, self._live + rows
        if physical > len(self._mask):
            self._grow(physical)
        self._mask[self._physical : physical] = 1
        self._cells[self._live : live] = np.arange(self._physical, physical)
        self._physical, self._live = physical, live

    def truncate(self, length: int) -> int:
        """Hide the live cells at logical positions >= `length`; returns how many were hidden."""
        if not 0 <= length <= self._live:
            raise ValueError(f"cannot truncate {self._live} live cells to {length}")
        hidden = self._live - length
        self._mask[self._cells[length : self._live]] = 0
        self._live = length
        return hidden

    def clear(self) -> None:
        """Forget every cell; the physical cache was emptied."""
        self._physical = self._live = 0

    def mask(self) -> NDArray[np.int64]:
        """int64 [physical], 1 for live cells: a view that the next `append` may leave behind."""
        return self._mask[: self._physical]

    @property
    def mask_memory(self) -> NDArray[np.int64]:
        """int64 [capacity]: what `mask` is the beginning of; another array once it has grown."""
        return self._mask

    def positions(self, rows: int) -> NDArray[np.int64]:
        """int64 [rows]: logical positions of the last `rows` live cells."""
        return np.arange(self._live - rows, self._live)

    def compaction_plan(self) -> NDArray[np.int64]:
        """int64 [live]: physical cells to keep, in logical order. After the copy call `compacted`."""
        return self._cells[: self._live].copy()

    def compacted(self) -> None:
        """The physical cache now holds the cells of the plan and no others."""
        self._physical = self._live
        self._mask[: self._live] = 1
        self._cells[: self._live] = np.arange(self._live)

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * len(self._mask))
        for name, used in (("_mask", self._physical), ("_cells", self._live)):
            wider = np.zeros(capacity, dtype=np.int64)
            wider[:used] = getattr(self, name)[:used]
            setattr(self, name, wider)
