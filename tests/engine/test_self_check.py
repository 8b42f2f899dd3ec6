"""The self-check passes an engine that is right and names what a wrong one does wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import Cells, EngineSlice, EngineTraits, SliceOutput
from fleetchat.engine.refusal import StageShape
from fleetchat.engine.self_check import self_check
from fleetchat.ids import SessionKey

SHAPE = StageShape(first_stage=True, last_stage=True, hidden=8, vocabulary=50)


class Histories:
    """An engine whose logits are a random function of all ids up to the row."""

    traits = EngineTraits("paged", 8, True, 32, 1024)

    def __init__(self) -> None:
        self.held: dict[SessionKey, list[int]] = {}

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        return [self.one(item) for item in slices]

    def one(self, item: EngineSlice) -> SliceOutput:
        held = self.held.setdefault(item.key, [])
        self.go_back(held, item.first)
        held += item.token_ids.tolist()
        wanted = range(len(held) - item.logit_rows + 1, len(held) + 1)
        return SliceOutput(np.stack([self.logits(held[:end]) for end in wanted]))

    def go_back(self, held: list[int], first: int) -> None:
        del held[first:]

    def logits(self, history: list[int]) -> NDArray[np.float32]:
        return np.random.default_rng(history).standard_normal(SHAPE.vocabulary).astype(np.float32)

    def length(self, key: SessionKey) -> int:
        return len(self.held.get(key, ()))

    def cells(self, key: SessionKey) -> Cells:
        return Cells(self.length(key), 0)

    def truncate(self, key: SessionKey, length: int) -> None:
        raise AssertionError("not needed")

    def compact(self, key: SessionKey) -> bool:
        return True

    def compacting(self, key: SessionKey) -> bool:
        return False

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        raise AssertionError("not needed")

    def forget(self, key: SessionKey) -> None:
        self.held.pop(key, None)

    def sessions(self) -> list[SessionKey]:
        return list(self.held)

    def close(self) -> None:
        self.held.clear()


class NoRollback(Histories):
    def go_back(self, held: list[int], first: int) -> None:
        if first == 0:
            held.clear()


class NoReset(Histories):
    def go_back(self, held: list[int], first: int) -> None:
        del held[max(1, first) :]


class Mixing(Histories):
    """All sessions of one pass see the first one's history."""

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        outputs = super().run(slices)
        return [SliceOutput(np.roll(output.rows, len(slices) - 1, axis=1)) for output in outputs]


class OneRowDiffers(Histories):
    """Another kernel for single rows, with an error in it."""

    def one(self, item: EngineSlice) -> SliceOutput:
        output = super().one(item)
        return SliceOutput(output.rows + np.float32(0.1 * (len(item.token_ids) == 1)))


class NotFinite(Histories):
    def logits(self, history: list[int]) -> NDArray[np.float32]:
        return super().logits(history) * np.float32(np.nan)


class Refusing(Histories):
    def one(self, item: EngineSlice) -> SliceOutput:
        return SliceOutput(np.zeros((0, 0), dtype=np.float32), ("exception", "inference failed: no kernel"))


def test_a_right_engine_passes_and_is_left_empty() -> None:
    engine = Histories()
    assert self_check(engine, SHAPE, "exact") is None
    assert engine.sessions() == []


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (NoRollback(), "rollback: "),
        (NoReset(), "a reset: "),
        (Mixing(), "many sessions at once: "),
        (OneRowDiffers(), "single rows: "),
        (NotFinite(), "a reset: "),
        (Refusing(), "inference failed: no kernel"),
    ],
)
def test_a_wrong_engine_is_named(engine: Histories, text: str) -> None:
    assert (self_check(engine, SHAPE, "exact") or "").startswith(text)
    assert engine.sessions() == []


def test_noise_of_fast_precision_is_let_through_and_not_in_exact() -> None:
    assert self_check(OneRowDiffers(), SHAPE, "fast") is None


def test_an_engine_that_is_too_small_is_not_checked() -> None:
    engine = Refusing()
    engine.traits = EngineTraits("paged", 8, True, 32, 96)
    assert self_check(engine, SHAPE, "exact") is None
