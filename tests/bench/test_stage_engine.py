"""Saving, putting back and trimming the states of a real engine, and the control of `bench fusion`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fleetchat.bench.pairs import Effort
from fleetchat.bench.rollback import MASK, Ground, _dead_rows, _rollback_row
from fleetchat.bench.setting import Setting
from fleetchat.bench.stage_engine import OpenEngine, feed, key_of
from tests.tiny_model import TinyShape, write_tiny_stage

pytestmark = pytest.mark.slow
SHAPE = TinyShape()
IDS = [ord(letter) for letter in "some text that is long enough to be taken back"]


@pytest.fixture
def engine(tmp_path: Path) -> OpenEngine:
    return OpenEngine(
        write_tiny_stage(tmp_path / "stage.xml", 0, SHAPE.layers - 1),
        first_stage=True,
        last_stage=True,
        hidden=SHAPE.hidden,
        vocabulary=SHAPE.vocabulary,
        precision="exact",
        threads=1,
        context=256,
        kv_values_per_cell=2 * SHAPE.layers * SHAPE.kv_heads * SHAPE.head_size,
        cells=4096,
    )


def logits(engine: OpenEngine, session: int, first: int, ids: list[int]) -> np.ndarray:
    return feed(engine, session, first, ids, logit_rows=1).copy()


def test_a_restored_session_goes_on_as_the_one_that_was_saved(engine: OpenEngine) -> None:
    feed(engine, 1, 0, IDS)
    engine.restore(2, engine.states(1, len(IDS)), 10)
    assert (engine.length(key_of(2)), engine.cells(key_of(2)).dead) == (10, 0)
    expected = logits(engine, 3, 0, IDS[:11])
    assert np.abs(logits(engine, 2, 10, IDS[10:11]) - expected).max() < 1e-4


def test_repeated_cells_are_the_same_ones_again(engine: OpenEngine) -> None:
    feed(engine, 1, 0, IDS)
    once = engine.states(1, len(IDS))
    thrice = engine.repeated(once, 3)
    assert set(thrice) == set(once)
    engine.restore(2, thrice, 3 * len(IDS))
    assert engine.length(key_of(2)) == 3 * len(IDS)
    engine.trim(2, len(IDS))
    again = engine.states(2, len(IDS))
    assert all(np.array_equal(again[name], once[name]) for name in once)


def test_a_trimmed_session_has_forgotten_what_was_cut(engine: OpenEngine) -> None:
    feed(engine, 1, 0, IDS)
    engine.trim(1, 10)
    assert (engine.length(key_of(1)), engine.cells(key_of(1)).dead) == (10, 0)
    expected = logits(engine, 2, 0, IDS[:11])
    assert np.abs(logits(engine, 1, 10, IDS[10:11]) - expected).max() < 1e-4


def test_a_rollback_is_measured_without_leaving_sessions(engine: OpenEngine) -> None:
    feed(engine, MASK, 0, IDS)
    row = _rollback_row(Ground(engine, engine.states(MASK, len(IDS)), IDS), 20, 16)
    assert (row.id, row.unit, row.pairs) == ("rollback.20", "ms", 2)
    assert row.baseline is not None
    assert row.value > 0
    assert row.baseline > 0
    assert engine.sessions() == []


@pytest.mark.trio
async def test_dead_cells_are_there_while_they_are_measured(
    engine: OpenEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fleetchat.bench.rollback.DEAD", (8,))
    monkeypatch.setattr("fleetchat.bench.rollback.LIVE", 16)
    feed(engine, MASK, 0, IDS)
    ground = Ground(engine, engine.states(MASK, len(IDS)), IDS)
    seen: set[int] = set()
    append = engine.run

    def run(slices):  # type: ignore[no-untyped-def]
        outputs = append(slices)
        seen.add(engine.cells(key_of(MASK)).dead)
        return outputs

    monkeypatch.setattr(engine, "run", run)
    started = time.perf_counter()
    setting = Setting(tmp_path, Effort(pairs=2, seconds=0.01), (), lambda text: None)
    (row,) = await _dead_rows(setting, ground)
    assert (row.id, row.pairs) == ("rollback.dead.8", 2)
    assert {0, 9} <= seen <= {0, 1, 9}
    assert time.perf_counter() - started < 10
