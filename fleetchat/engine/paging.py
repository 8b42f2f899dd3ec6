"""The index inputs of one paged pass: where rows and blocks of its sequences begin and end. Pure.

Their meaning is that of OpenVINO's PagedAttention operation: rows of all sequences lie one behind the
other, and so do their block tables; the `begins` have one entry more than there are sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Part:
    """One session's part: `rows` new rows behind `past` cells, in the blocks of `table`."""

    past: int
    rows: int
    table: Sequence[int]
    logit_rows: int  # of its last rows, on the last stage


@dataclass(frozen=True, slots=True)
class PagedPass:
    """Sequences that run together, in order."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def longest_context(self) -> int:
        return max(part.past + part.rows for part in self.parts)

    def begins(self) -> list[int]:
        """First row of each part, and the number of rows."""
        return _running(part.rows for part in self.parts)

    def positions(self) -> NDArray[np.int64]:
        """int64 [rows]: logical positions."""
        return np.concatenate([np.arange(part.past, part.past + part.rows) for part in self.parts])

    def logit_rows(self) -> NDArray[np.int64]:
        """int64 [n]: rows that go through the head. At least one: the head is never run on nothing."""
        ends = self.begins()[1:]
        wanted = [np.arange(end - part.logit_rows, end) for end, part in zip(ends, self.parts, strict=True)]
        rows = np.concatenate(wanted)
        return rows if len(rows) else np.array([self.rows - 1])

    def index_inputs(self) -> dict[str, NDArray[np.int32]]:
        """The int32 inputs by name; `max_context_len` has no dimension."""
        tables = [part.table for part in self.parts]
        return {
            "past_lens": np.array([part.past for part in self.parts], dtype=np.int32),
            "subsequence_begins": np.array(self.begins(), dtype=np.int32),
            "block_indices": np.array([block for table in tables for block in table], dtype=np.int32),
            "block_indices_begins": np.array(_running(map(len, tables)), dtype=np.int32),
            "max_context_len": np.array(self.longest_context, dtype=np.int32),
        }

    def split(self, output: NDArray[np.float32], *, logits: bool) -> Iterator[NDArray[np.float32]]:
        """Each part's rows of an output [rows, width]: views."""
        begin = 0
        for part in self.parts:
            end = begin + (part.logit_rows if logits else part.rows)
            yield output[begin:end]
            begin = end


def _running(counts: Iterable[int]) -> list[int]:
    begins = [0]
    for count in counts:
        begins.append(begins[-1] + count)
    return begins
