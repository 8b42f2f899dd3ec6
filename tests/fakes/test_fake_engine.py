"""The fake engine is held to the same rules as the real ones, and its own promises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import EngineSlice
from tests.engine.conformance import PROMPT, Chain, DeadCellConformance, feed, greedy, session
from tests.fakes.engine import (
    FakeEngine,
    ForeignRow,
    Mischief,
    by_position,
    decoded,
    encoded,
    reply,
    stopping_at,
)


def fake_chain(stages: int, cells: int = 4096) -> Chain:
    return [FakeEngine(stage, stages, cells=cells) for stage in range(stages)]


class FakeConformance(DeadCellConformance):
    def assert_close(self, got: NDArray[np.float32], wanted: NDArray[np.float32], chain: Chain) -> None:
        """Rows of two sessions differ on purpose."""
        assert got.shape == wanted.shape


class TestOneStage(FakeConformance):
    @pytest.fixture
    def chain(self) -> Chain:
        return fake_chain(1)

    @pytest.fixture
    def new_chain(self) -> Callable[[int], Chain]:
        return lambda cells: fake_chain(1, cells)


class TestThreeStages(FakeConformance):
    @pytest.fixture
    def chain(self) -> Chain:
        return fake_chain(3)

    @pytest.fixture
    def new_chain(self) -> Callable[[int], Chain]:
        return lambda cells: fake_chain(3, cells)


def test_the_reply_is_known_in_advance() -> None:
    assert greedy(fake_chain(2), session(7), 0, PROMPT, 40) == reply(7, len(PROMPT), 40)


def test_sessions_get_different_replies_and_by_position_does_not() -> None:
    assert reply(1, 0, 40) != reply(2, 0, 40)
    assert reply(1, 0, 40, by_position) == reply(2, 0, 40, by_position)


def test_an_oracle_can_stop() -> None:
    chain: Chain = [FakeEngine(oracle=stopping_at({30: 258}))]
    drawn = greedy(chain, session(1), 0, PROMPT, 8)
    assert drawn[30 - len(PROMPT)] == 258
    assert drawn[:5] == reply(1, len(PROMPT), 5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_hidden_rows_survive_the_wire(dtype: type[np.floating]) -> None:
    rows = encoded(2, 70_000, 5_000, [0, 258, 151_935])
    assert decoded(rows.astype(dtype)) == [
        (2, 70_000, 5_000, 0),
        (2, 70_000, 5_001, 258),
        (2, 70_000, 5_002, 151_935),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        encoded(0, 2, 0, [65, 66]),
        encoded(0, 1, 1, [65, 66]),
        encoded(0, 1, 0, [65, 67]),
        encoded(1, 1, 0, [65, 66]),
    ],
    ids=["session", "position", "token", "stage"],
)
def test_a_foreign_row_fails_at_once(wrong: NDArray[np.float32]) -> None:
    engine = FakeEngine(1, 2)
    with pytest.raises(ForeignRow):
        engine.run([EngineSlice(session(1), 0, np.array([65, 66], dtype=np.int32), wrong, 1)])


def test_mischief() -> None:
    seen: list[int] = []
    mischief = Mischief(
        faults={1: ("exception", "no luck")},
        crashes={2: RuntimeError("boom")},
        non_finite=frozenset({3}),
        before_run=seen.append,
    )
    engine = FakeEngine(mischief=mischief)
    item = EngineSlice(session(1), 0, np.array([65], dtype=np.int32), None, 1)
    assert engine.run([item])[0].fault is None
    assert engine.run([item])[0].fault == ("exception", "no luck")
    with pytest.raises(RuntimeError, match="boom"):
        engine.run([item])
    assert np.isnan(engine.run([item])[0].rows).any()
    assert seen == [0, 1, 2, 3]


def test_a_gap_is_the_callers_fault() -> None:
    with pytest.raises(AssertionError, match="gap"):
        feed([FakeEngine()], session(1), 3, PROMPT)
