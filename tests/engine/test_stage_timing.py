"""The timing of a stage, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleetchat.engine.fast_settings import Timing
from fleetchat.engine.interface import EngineSlice, SliceOutput
from fleetchat.engine.refusal import StageShape
from fleetchat.engine.stage_timing import CELLS, time_stage
from fleetchat.errors import FleetError
from fleetchat.ids import SessionKey

FIRST = StageShape(first_stage=True, last_stage=False, hidden=4, vocabulary=10)
LAST = StageShape(first_stage=False, last_stage=True, hidden=4, vocabulary=10)


class ClockedEngine:
    """Runs of so many rows take so many seconds; a whole round of the first runs takes longer."""

    def __init__(self, seconds: dict[int, float], *, slow_first: float = 0.0) -> None:
        self._seconds = seconds
        self._slow_first = slow_first
        self.now = 0.0
        self.runs: list[EngineSlice] = []
        self.forgotten: list[SessionKey] = []
        self.fault: tuple[str, str] | None = None

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        (item,) = slices
        self.runs.append(item)
        self.now += self._seconds[len(item.token_ids)] + (self._slow_first if len(self.runs) <= 5 else 0)
        return [SliceOutput(np.zeros((0, 0), dtype=np.float32), self.fault)]

    def forget(self, key: SessionKey) -> None:
        self.forgotten.append(key)

    def clock(self) -> float:
        return self.now

    def time(self, shape: StageShape) -> Timing:
        return time_stage(self, shape, self.clock)  # type: ignore[arg-type]


def test_medians_of_one_row_of_8_and_of_64() -> None:
    engine = ClockedEngine({1: 0.001, 8: 0.002, 64: 0.016}, slow_first=1.0)
    timing = engine.time(FIRST)
    assert (timing.decode, timing.verify, timing.chunk) == pytest.approx((0.001, 0.002, 0.016))


def test_a_session_begins_anew_in_every_round_and_is_gone_at_the_end() -> None:
    engine = ClockedEngine({1: 0.001, 8: 0.002, 64: 0.016})
    engine.time(FIRST)
    assert [(item.first, len(item.token_ids)) for item in engine.runs] == 5 * [
        (0, 64), (64, 8), (72, 1), (73, 1), (74, 1)
    ]  # fmt: skip
    assert CELLS == 75
    assert engine.forgotten == [engine.runs[0].key]


def test_three_rounds_are_enough_of_a_slow_stage() -> None:
    engine = ClockedEngine({1: 1.0, 8: 2.0, 64: 16.0})
    assert engine.time(FIRST) == Timing(1.0, 2.0, 16.0)
    assert len(engine.runs) == 15


@pytest.mark.parametrize(("shape", "logit_rows"), [(FIRST, [0, 0, 0]), (LAST, [1, 8, 1])])
def test_a_stage_gets_what_it_takes(shape: StageShape, logit_rows: list[int]) -> None:
    engine = ClockedEngine({1: 1.0, 8: 2.0, 64: 16.0})
    engine.time(shape)
    assert [item.logit_rows for item in engine.runs[:3]] == logit_rows
    for item in engine.runs:
        assert set(item.token_ids.tolist()) <= set(range(10))
        if shape.first_stage:
            assert item.hidden is None
        else:
            assert item.hidden is not None
            assert item.hidden.shape == (len(item.token_ids), 4)


def test_a_run_that_fails_is_an_error() -> None:
    engine = ClockedEngine({1: 1.0, 8: 2.0, 64: 16.0})
    engine.fault = ("overflow", "no cells")
    with pytest.raises(FleetError, match="the stage cannot be timed: no cells"):
        engine.time(FIRST)
