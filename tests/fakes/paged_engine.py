"""A paged engine without OpenVINO: the cells hold token ids, and a row's best token depends on all before it.

So a fork, an eviction or a rollback that leaves one wrong cell gives another reply. Blocks are those of
the real manager; what lies in them is written and copied as the tensors are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.blocks import BlockManager, BlockPool
from fleetchat.engine.interface import Cells, EngineSlice, EngineTraits, SliceOutput
from fleetchat.ids import SessionKey
from tests.fakes.engine import FAKE_VOCABULARY, Mischief, decoded, encoded

BLOCK = 4


def history_token(history: Sequence[int]) -> int:
    """What comes after `history`: a lower-case letter that depends on all of it."""
    return 97 + zlib.crc32(np.array(history, dtype=np.int32).tobytes()) % 26


def history_reply(prompt: Sequence[int], tokens: int) -> list[int]:
    """The greedy reply to `prompt`."""
    history = list(prompt)
    for _ in range(tokens):
        history.append(history_token(history))
    return history[len(prompt) :]


class FakePagedEngine:
    """Implements `StageEngine`. `before_run` gets the number of slices of each pass."""

    def __init__(
        self,
        stage: int = 0,
        stages: int = 1,
        *,
        cells: int = 4096,
        sessions_per_batch: int = 32,
        before_run: Callable[[Sequence[EngineSlice]], None] = lambda slices: None,
        mischief: Mischief | None = None,
    ) -> None:
        self.stage, self.stages = stage, stages
        self.before_run = before_run
        self.mischief = mischief or Mischief()
        self.most_blocks = 0
        self.largest_pass = 0
        self.passes = 0
        self.slices_run = 0
        self.closed = False
        self._traits = EngineTraits("paged", sessions_per_batch, True, BLOCK, cells // BLOCK * BLOCK)
        self._blocks: BlockManager[SessionKey] = BlockManager(BlockPool(cells // BLOCK), BLOCK)
        self._memory: dict[int, list[int]] = {}

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    def length(self, key: SessionKey) -> int:
        return self._blocks.length(key)

    def cells(self, key: SessionKey) -> Cells:
        return Cells(self.length(key), 0)

    def sessions(self) -> list[SessionKey]:
        return self._blocks.sessions()

    def content(self, key: SessionKey) -> list[int]:
        """What the session's cells hold."""
        cells = [token for block in self._blocks.table(key) for token in self._memory[block]]
        return cells[: self.length(key)]

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        assert not self.closed, "run after close"
        assert 1 <= len(slices) <= self._traits.sessions_per_batch
        self.before_run(slices)
        self.passes += 1
        self.largest_pass = max(self.largest_pass, len(slices))
        return [self._run_slice(item) for item in slices]

    def _run_slice(self, item: EngineSlice) -> SliceOutput:
        number, rows = self.slices_run, len(item.token_ids)
        self.slices_run += 1
        self._blocks.limit = None if item.granted is None else item.granted // BLOCK
        fault = self.mischief.faults.get(number)
        if fault is None and self._blocks.shortage(item.key, item.first, rows):
            fault = ("overflow", f"{self._blocks.held} blocks are in use")
        if fault is not None:
            return SliceOutput(np.zeros((0, 0), dtype=np.float32), fault)
        assert item.first <= self.length(item.key), "a gap"
        self._check_rows(item)
        self._blocks.truncate(item.key, item.first)
        for copy in self._blocks.append(item.key, rows):
            self._memory[copy.target] = list(self._memory[copy.source])
        self._write(item)
        self.most_blocks = max(self.most_blocks, self._blocks.held)
        return SliceOutput(self._rows(item))

    def _check_rows(self, item: EngineSlice) -> None:
        if item.hidden is not None:
            sent = encoded(self.stage - 1, item.key.session, item.first, item.token_ids.tolist())
            assert decoded(item.hidden) == decoded(sent), "a foreign row"

    def _write(self, item: EngineSlice) -> None:
        table = self._blocks.table(item.key)
        for position, token in enumerate(item.token_ids.tolist(), item.first):
            self._memory.setdefault(table[position // BLOCK], [-1] * BLOCK)[position % BLOCK] = token

    def _rows(self, item: EngineSlice) -> NDArray[np.float32]:
        if self.stage < self.stages - 1:
            return encoded(self.stage, item.key.session, item.first, item.token_ids.tolist())
        content = self.content(item.key)
        logits = np.zeros((item.logit_rows, FAKE_VOCABULARY), dtype=np.float32)
        for row in range(item.logit_rows):
            logits[row, history_token(content[: len(content) - item.logit_rows + row + 1])] = 30.0
        return logits

    def truncate(self, key: SessionKey, length: int) -> None:
        if length < self.length(key):
            self._blocks.truncate(key, length)

    def compact(self, key: SessionKey) -> bool:
        raise AssertionError("compaction was ordered, but no cell is dead")

    def compacting(self, key: SessionKey) -> bool:
        return False

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        self._blocks.fork(new, source, length)

    def forget(self, key: SessionKey) -> None:
        self._blocks.free(key)

    def close(self) -> None:
        self.closed = True
