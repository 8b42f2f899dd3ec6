"""The default model, converted from its GGUF and repaired: its chains are the whole model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from fleetchat.cutter.cut import CutResult, cut_model
from fleetchat.cutter.fusion import fused_attention, strip_gather
from fleetchat.cutter.selfcheck import TOLERANCE, self_check
from fleetchat.cutter.trial import FloatArray, Trial
from tests.cutter.fixture_models import CORE, compiled

pytestmark = pytest.mark.slow

LAYERS = 30
Cut = Callable[[int], CutResult]


@pytest.fixture(scope="module")
def cut(default_whole_ir: Path, tmp_path_factory: pytest.TempPathFactory) -> Cut:
    def cut_into(stages: int) -> CutResult:
        folder = tmp_path_factory.mktemp(f"{stages}-stages")
        return cut_model(
            default_whole_ir, folder, stages=stages, ranges=None, on_progress=lambda step, done, total: None
        )

    return cut_into


def logits_of(stages: list[ov.CompiledModel]) -> FloatArray:
    """All rows of a prefill, two single rows, and a chunk of four."""
    trial = Trial(stages)
    ids = np.random.default_rng(4).integers(0, 49_152, 26)
    return np.concatenate(
        [trial.feed(ids[start:end]) for start, end in ((0, 20), (20, 21), (21, 22), (22, 26))]
    )


@pytest.fixture(scope="module")
def whole_logits(default_whole_ir: Path) -> FloatArray:
    return logits_of([compiled(default_whole_ir)])


@pytest.mark.parametrize("stages", [2, 3])
def test_the_chain_is_the_whole_model(stages: int, cut: Cut, whole_logits: FloatArray) -> None:
    result = cut(stages)
    loaded = [compiled(stage.xml) for stage in result.stages]
    np.testing.assert_array_equal(logits_of(loaded), whole_logits)
    counts = [stage.last_layer - stage.first_layer + 1 for stage in result.stages]
    assert sum(counts) == LAYERS
    assert [fused_attention(stage) for stage in loaded] == [(count, count) for count in counts]
    assert [(stage.attention_layers, stage.fused_layers) for stage in result.stages] == [
        (count, count) for count in counts
    ]


def test_two_stages_are_balanced_by_cost_and_pass_the_self_check(cut: Cut, default_whole_ir: Path) -> None:
    result = cut(2)
    first, last = result.stages
    assert (first.first_layer, first.last_layer, last.first_layer, last.last_layer) == (0, 17, 18, 29)
    assert (result.shape.hidden, result.shape.vocabulary, result.shape.window) == (576, 49_152, 0)
    assert first.kv_shapes == ((3, 64),) * 36
    check = self_check(default_whole_ir, [first.xml, last.xml])
    assert check.same_graph == 0.0
    assert check.same_mathematics <= TOLERANCE
    assert check.rollback <= TOLERANCE
    assert check.rollback_passed
    assert 1e4 < check.largest_activation < 3e4  # f16 on the wire is just safe


def test_without_fusion_it_says_the_same(default_whole_ir: Path, whole_logits: FloatArray) -> None:
    """The control of `bench fusion`; its repetition of KV heads needs repair to run unfused at all."""
    model = CORE.read_model(default_whole_ir)
    assert strip_gather(model) == 2 * LAYERS
    control = compiled(model)
    assert fused_attention(control)[1] == 0
    np.testing.assert_allclose(logits_of([control]), whole_logits, rtol=0, atol=1e-3)
