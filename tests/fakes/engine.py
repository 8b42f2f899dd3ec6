"""A stage engine without OpenVINO whose replies are known in advance.

A stage of fake engines is an oracle ring: hidden rows carry (stage, session, position, token), every
stage checks what it gets, and the last one makes `oracle(session, position)` the best token for each
position. So a lost, doubled, misplaced or foreign row fails at once, and a test knows the whole reply
without running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.interface import Cells, EngineSlice, EngineTraits, SliceOutput
from fleetchat.engine.ledger import KvLedger
from fleetchat.errors import SliceFailed
from fleetchat.ids import SessionKey

Oracle = Callable[[int, int], int]  # (session number, logical position of the token) -> token

FAKE_VOCABULARY = 259  # that of tests.tiny_model: bytes and three special tokens
FAKE_HIDDEN = 8  # stage, session, position, token: two digits each
_DIGIT = 1024  # whole numbers below 2048 survive f16
_LETTERS = range(97, 123)


def by_session(session: int, position: int) -> int:
    """The default oracle: a lower-case letter that depends on session and position."""
    return _LETTERS[_scrambled(session, position) % len(_LETTERS)]


def by_position(session: int, position: int) -> int:
    """An oracle that is the same for all sessions, for tests in which a session gets a new number."""
    return by_session(0, position)


def reply(session: int, first: int, tokens: int, oracle: Oracle = by_session) -> list[int]:
    """The `tokens` greedy tokens at logical positions `first` and on."""
    return [oracle(session, position) for position in range(first, first + tokens)]


def stopping_at(stop: Mapping[int, int], oracle: Oracle = by_session) -> Oracle:
    """`oracle`, but with the given tokens at the given positions, e.g. a stop id."""
    return lambda session, position: stop.get(position, oracle(session, position))


def _scrambled(session: int, position: int) -> int:
    mixed = (session * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed ^= mixed >> 31
    return (mixed * 0x94D049BB133111EB & (2**64 - 1)) >> 40


def encoded(stage: int, session: int, first: int, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Hidden rows that leave `stage`: f32 [rows, FAKE_HIDDEN], exact in f16 as well."""
    rows = [(stage, session, first + row, int(token)) for row, token in enumerate(token_ids)]
    digits = [[digit for number in row for digit in divmod(number, _DIGIT)] for row in rows]
    return np.array(digits, dtype=np.float32).reshape(len(rows), FAKE_HIDDEN)


def decoded(rows: NDArray[np.floating]) -> list[tuple[int, int, int, int]]:
    """(stage, session, position, token) of each hidden row."""
    pairs = np.asarray(rows, dtype=np.float64).reshape(len(rows), 4, 2)
    numbers = (pairs[:, :, 0] * _DIGIT + pairs[:, :, 1]).astype(np.int64).tolist()
    return [(stage, session, position, token) for stage, session, position, token in numbers]


class ForeignRow(AssertionError):
    """A stage got a row that does not belong where it arrived."""


@dataclass
class Mischief:
    """What goes wrong in a fake engine, by the running number of its slice (from 0)."""

    faults: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # the slice fails with (code, text)
    crashes: Mapping[int, Exception] = field(default_factory=dict)  # `run` raises
    non_finite: frozenset[int] = frozenset()  # the logits hold a NaN
    before_run: Callable[[int], None] = lambda number: None  # called first: wait for an event here to delay


class FakeEngine:
    """Implements `StageEngine`. `stage` of `stages`; cells are counted by the real ledger."""

    def __init__(
        self,
        stage: int = 0,
        stages: int = 1,
        *,
        oracle: Oracle = by_session,
        vocabulary: int = FAKE_VOCABULARY,
        cells: int = 1 << 20,
        sessions_per_batch: int = 1,
        compaction_steps: int = 3,
        mischief: Mischief | None = None,
        name: str = "masked",
    ) -> None:
        self.stage, self.stages = stage, stages
        self.oracle, self.vocabulary = oracle, vocabulary
        self.mischief = mischief or Mischief()
        self.slices_run = 0
        self.closed = False
        self._traits = EngineTraits(name, sessions_per_batch, can_fork=False, block_size=1, cells=cells)
        self._ledgers: dict[SessionKey, KvLedger] = {}
        self._compaction_steps = compaction_steps
        self._compacting: dict[SessionKey, int] = {}  # steps left

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def length(self, key: SessionKey) -> int:
        return self.cells(key).live

    def cells(self, key: SessionKey) -> Cells:
        ledger = self._ledgers.get(key)
        return Cells(ledger.live, ledger.dead) if ledger else Cells(0, 0)

    def sessions(self) -> list[SessionKey]:
        return list(self._ledgers)

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        assert not self.closed, "run after close"
        assert 1 <= len(slices) <= self._traits.sessions_per_batch, f"a batch of {len(slices)} slices"
        return [self._run_slice(item) for item in slices]

    def _run_slice(self, item: EngineSlice) -> SliceOutput:
        number = self.slices_run
        self.slices_run += 1
        self.mischief.before_run(number)
        if number in self.mischief.crashes:
            raise self.mischief.crashes[number]
        fault = self.mischief.faults.get(number) or self._overflow(item)
        if fault:
            return SliceOutput(np.zeros((0, 0), dtype=np.float32), fault)
        self._check_rows(item)
        self._append(item)
        return SliceOutput(self._output_rows(item, poisoned=number in self.mischief.non_finite))

    def _overflow(self, item: EngineSlice) -> tuple[str, str] | None:
        used = sum(ledger.physical for key, ledger in self._ledgers.items() if item.first or key != item.key)
        if used + len(item.token_ids) <= self._traits.cells:
            return None
        return ("overflow", f"{used} of {self._traits.cells} cells used, {len(item.token_ids)} more wanted")

    def _check_rows(self, item: EngineSlice) -> None:
        if self.stage == 0:
            assert item.hidden is None, "stage 0 takes token ids only"
            return
        assert item.hidden is not None, "a later stage needs hidden rows"
        wanted = decoded(encoded(self.stage - 1, item.key.session, item.first, item.token_ids.tolist()))
        got = decoded(item.hidden)
        if got != wanted:
            raise ForeignRow(f"stage {self.stage} expected {wanted}, got {got}")

    def _append(self, item: EngineSlice) -> None:
        self._finish_compaction(item.key)
        ledger = self._ledgers.setdefault(item.key, KvLedger())
        if item.first > ledger.length:
            raise AssertionError(f"gap: first {item.first}, length {ledger.length}")
        self._cut(ledger, item.first)
        ledger.append(len(item.token_ids))

    @staticmethod
    def _cut(ledger: KvLedger, length: int) -> None:
        ledger.truncate(length)
        if length == 0:  # like the masked engine: an emptied session starts afresh
            ledger.clear()

    def _output_rows(self, item: EngineSlice, *, poisoned: bool) -> NDArray[np.float32]:
        rows = len(item.token_ids)
        if not self.is_last:
            return encoded(self.stage, item.key.session, item.first, item.token_ids.tolist())
        logits = np.zeros((item.logit_rows, self.vocabulary), dtype=np.float32)
        for index in range(item.logit_rows):
            position = item.first + rows - item.logit_rows + index + 1
            best = self.oracle(item.key.session, position)
            logits[index, best] = 30.0
            logits[index, (best + 1) % self.vocabulary] = 20.0
        if poisoned:
            logits[:, 0] = np.nan
        return logits

    def truncate(self, key: SessionKey, length: int) -> None:
        self._finish_compaction(key)
        if key in self._ledgers and length < self._ledgers[key].length:
            self._cut(self._ledgers[key], length)

    def compact(self, key: SessionKey) -> bool:
        ledger = self._ledgers.get(key)
        if ledger is None or ledger.dead == 0:
            return True
        left = self._compacting.get(key, self._compaction_steps) - 1
        if left > 0:
            self._compacting[key] = left
            return False
        self._compacting.pop(key, None)
        ledger.compacted()
        return True

    def compacting(self, key: SessionKey) -> bool:
        return key in self._compacting

    def _finish_compaction(self, key: SessionKey) -> None:
        while key in self._compacting:
            self.compact(key)

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        raise SliceFailed("unsupported", f"the {self._traits.name} engine does not fork sessions")

    def forget(self, key: SessionKey) -> None:
        self._ledgers.pop(key, None)
        self._compacting.pop(key, None)

    def close(self) -> None:
        self._ledgers.clear()
        self._compacting.clear()
        self.closed = True
