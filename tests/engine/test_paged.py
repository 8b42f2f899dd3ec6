"""The paged engine on a tiny random model: the conformance suite, and what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from fleetchat.engine.block_tensors import FIRST_BLOCKS
from fleetchat.engine.interface import Cells, EngineSlice
from fleetchat.engine.paged import SESSIONS_PER_BATCH, PagedEngine
from fleetchat.errors import FleetError
from tests.engine.conformance import (
    OTHER,
    PROMPT,
    PROMPTS,
    SAME_MATHEMATICS,
    Chain,
    ForkingConformance,
    feed,
    greedy,
    session,
)
from tests.engine.tiny_chains import SHAPE, THREE_STAGES, emptied, masked_chain, paged_chain, paged_engine

BLOCK = 32
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one_stage(folder: Path) -> Chain:
    return paged_chain(folder)


@pytest.fixture(scope="module")
def three_stages(folder: Path) -> Chain:
    return paged_chain(folder, THREE_STAGES)


class TestOneStage(ForkingConformance):
    @pytest.fixture
    def chain(self, one_stage: Chain) -> Iterator[Chain]:
        yield from emptied(one_stage)

    @pytest.fixture
    def new_chain(self, folder: Path) -> Callable[[int], Chain]:
        return lambda cells: paged_chain(folder, cells=cells)


class TestThreeStages(ForkingConformance):
    @pytest.fixture
    def chain(self, three_stages: Chain) -> Iterator[Chain]:
        yield from emptied(three_stages)

    @pytest.fixture
    def new_chain(self, folder: Path) -> Callable[[int], Chain]:
        return lambda cells: paged_chain(folder, THREE_STAGES, cells=cells)


@pytest.fixture
def chain(one_stage: Chain) -> Iterator[Chain]:
    yield from emptied(one_stage)


@pytest.fixture
def engine(chain: Chain) -> PagedEngine:
    assert isinstance(chain[0], PagedEngine)
    return chain[0]


def item(number: int, first: int, token_ids: list[int], logit_rows: int = 1) -> EngineSlice:
    return EngineSlice(session(number), first, np.array(token_ids, dtype=np.int32), None, logit_rows)


def test_paged_and_masked_give_the_same_logits_and_ids(chain: Chain, folder: Path) -> None:
    masked = masked_chain(folder)
    for first, ids in ((0, PROMPT), (len(PROMPT), [65]), (20, OTHER), (30, [1, 2, 3, 4]), (0, OTHER)):
        rows = [feed(engines, session(1), first, ids, logit_rows=len(ids)) for engines in (chain, masked)]
        assert np.abs(rows[0] - rows[1]).max() <= SAME_MATHEMATICS
    for number, prompt in PROMPTS.items():
        assert greedy(chain, session(number), 0, prompt, 60) == greedy(masked, session(number), 0, prompt, 60)


def test_memory_grows_with_the_cells_and_no_content_is_lost(folder: Path) -> None:
    chain = paged_chain(folder, cells=2048)
    engine = chain[0]
    assert isinstance(engine, PagedEngine)
    assert engine.allocated_cells == FIRST_BLOCKS * BLOCK
    assert engine.cell_bytes == 4 * SHAPE.layers * SHAPE.kv_values_per_layer
    feed(chain, session(1), 0, PROMPT)
    before = feed(chain, session(1), len(PROMPT), [65])
    feed(chain, session(2), 0, [65] * 1000)
    assert engine.allocated_cells == 2 * FIRST_BLOCKS * BLOCK + BLOCK
    feed(chain, session(3), 0, [66] * 900)
    assert engine.allocated_cells == 2048
    assert np.array_equal(feed(chain, session(1), len(PROMPT), [65]), before)
    assert engine.run([item(4, 0, [67] * 200)])[0].fault == (
        "overflow",
        "200 rows at 0 need 5 more blocks of 32 cells than there are: 1984 of 2048 cells are in use",
    )


def test_a_chain_keeps_to_its_grant(engine: PagedEngine) -> None:
    def granted(number: int, rows: int) -> EngineSlice:
        ids = np.full(rows, 65, dtype=np.int32)
        return EngineSlice(session(number), 0, ids, None, 1, granted=70)

    outputs = engine.run([granted(1, 33), granted(2, 1), granted(3, 30)])
    assert [output.fault and output.fault[0] for output in outputs] == [None, "overflow", "overflow"]
    engine.forget(session(1))
    assert engine.run([granted(2, 1)])[0].fault is None


def test_a_poisoned_session_stays_alone_also_when_its_blocks_are_reused(folder: Path) -> None:
    stage = paged_engine(folder, 1, 2)
    ids = np.array(PROMPT, dtype=np.int32)
    hidden = np.random.default_rng(1).standard_normal((len(ids), SHAPE.hidden)).astype(np.float32)
    (clean,) = stage.run([EngineSlice(session(1), 0, ids, hidden, 0)])
    wanted = clean.rows.copy()
    poison = EngineSlice(session(2), 0, ids, np.full_like(hidden, np.nan), 0)
    for first in (0, 0):
        spoiled, good = stage.run([poison, EngineSlice(session(1), first, ids, hidden, 0)])
        assert np.isnan(spoiled.rows).all()
        assert np.abs(good.rows - wanted).max() <= SAME_MATHEMATICS
    stage.forget(session(2))
    (again,) = stage.run([EngineSlice(session(3), 0, ids, hidden, 0)])
    assert np.abs(again.rows - wanted).max() <= SAME_MATHEMATICS
    (one,) = stage.run([EngineSlice(session(3), len(ids), ids[:1], hidden[:1], 0)])
    assert np.isfinite(one.rows).all()


def test_a_pass_that_fails_is_repeated_slice_by_slice(
    engine: PagedEngine, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = feed(chain, session(1), 0, PROMPT)
    feed(chain, session(2), 0, OTHER)
    infer = engine._infer

    def broken(items: list[EngineSlice]) -> list[Any]:
        if any(one.key == session(2) for one in items):
            raise RuntimeError("Exception from src/core.cpp:7:\n\nout of luck\n")
        return infer(items)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_infer", broken)
        outputs = engine.run([item(3, 0, PROMPT), item(2, len(OTHER), [65]), item(4, 0, OTHER)])
    assert [output.fault for output in outputs] == [
        None,
        ("exception", "inference failed: out of luck"),
        None,
    ]
    assert np.abs(outputs[0].rows - wanted).max() <= SAME_MATHEMATICS
    assert engine.cells(session(2)) == Cells(0, 0)
    assert sorted(key.session for key in engine.sessions()) == [1, 3, 4]


def test_a_session_that_comes_twice_runs_in_two_passes(engine: PagedEngine, chain: Chain) -> None:
    wanted = [feed(chain, session(1), 0, PROMPT), feed(chain, session(1), len(PROMPT), OTHER)]
    outputs = engine.run([item(2, 0, PROMPT), item(3, 0, OTHER), item(2, len(PROMPT), OTHER)])
    for output, logits in zip((outputs[0], outputs[2]), wanted, strict=True):
        assert np.abs(output.rows - logits).max() <= SAME_MATHEMATICS


def test_as_many_sessions_as_the_traits_say(engine: PagedEngine) -> None:
    outputs = engine.run([item(number, 0, [number + 40]) for number in range(SESSIONS_PER_BATCH)])
    assert all(output.fault is None and output.rows.shape == (1, 259) for output in outputs)
    assert len({output.rows.tobytes() for output in outputs}) == SESSIONS_PER_BATCH


def test_fast_precision_keeps_u8_blocks_and_rolls_back(folder: Path) -> None:
    chain = paged_chain(folder, precision="fast")
    engine = chain[0]
    assert isinstance(engine, PagedEngine)
    assert engine.cell_bytes < 2 * SHAPE.layers * SHAPE.kv_values_per_layer
    wanted = feed(chain, session(1), 0, PROMPT + OTHER)
    feed(chain, session(2), 0, [*PROMPT, 9, 9, 9])
    engine.fork(session(3), session(2), len(PROMPT))
    for number in (2, 3):
        got = feed(chain, session(number), len(PROMPT), OTHER)
        assert np.abs(got - wanted).max() < 0.5


def test_the_budget_follows_the_free_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetchat.engine.warm_up.available_memory", lambda: 10 << 20)
    engine = paged_engine(folder, 0, 3, cells=None)
    affordable = int(0.8 * (10 << 20) / engine.cell_bytes)
    assert engine.traits.cells == affordable // BLOCK * BLOCK


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vocabulary": 300}, r"the output is \(1, 259\), not \(1, 300\)"),
        ({"attention_layers": 5}, "4 of 5 attention layers"),
        ({"last_stage": False}, "needs the inputs logit_rows"),
        ({"first_stage": False}, "cannot be run in pages"),
        ({"device": "GPU"}, "runs on CPU, not on GPU"),
    ],
)
def test_a_shard_that_is_not_what_was_said(folder: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(FleetError, match=text):
        paged_engine(folder, 0, 3, **changes)


def test_a_damaged_shard(tmp_path: Path) -> None:
    (tmp_path / "stage_0_3.xml").write_text("<net></net>")
    with pytest.raises(FleetError, match=r"stage_0_3\.xml cannot be run in pages"):
        paged_engine(tmp_path, 0, 3)


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    ids = ov.opset13.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).get_tensor().set_names({"input_ids"})
    model = ov.Model([ov.opset13.result(ov.opset13.convert(ids, "f32"))], [ids], "none")
    ov.save_model(model, tmp_path / "stage_0_3.xml")
    with pytest.raises(FleetError, match="cannot be run in pages") as caught:
        paged_engine(tmp_path, 0, 3)
    assert "masked" in (caught.value.hint or "")
