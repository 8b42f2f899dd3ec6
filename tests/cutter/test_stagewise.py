"""The self-check that has one stage in memory at a time finds what the one with the whole model finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from fleetchat.cutter.cut import cut_model
from fleetchat.cutter.manifest import SelfCheck
from fleetchat.cutter.partition import LayerRange
from fleetchat.cutter.stagewise import ids_needed, same_graph, stagewise_check
from fleetchat.errors import BuildError
from tests.cutter.fixture_models import CORE, VOCABULARY, whole_ir
from tests.cutter.test_selfcheck import constants, replace

Stages = list[tuple[Path, LayerRange]]


def cut(family: str, folder: Path, stages: int) -> Stages:
    result = cut_model(
        whole_ir(family), folder, stages=stages, ranges=None, on_progress=lambda step, done, total: None
    )
    return [(stage.xml, (stage.first_layer, stage.last_layer)) for stage in result.stages]


def check(family: str, stages: Stages, *, window: int = 0) -> SelfCheck:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, ids_needed(window))
    return stagewise_check(whole_ir(family), stages, ids, window=window, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "stages"), [("falcon", 2), ("llama", 4)])
def test_a_good_chain_passes(family: str, stages: int, tmp_path: Path) -> None:
    found = check(family, cut(family, tmp_path, stages))
    assert found.same_graph == 0.0
    assert 0 < found.same_mathematics <= 1e-4
    assert 0 < found.rollback <= 1e-4
    assert found.rollback_passed
    assert found.largest_activation > 0.1


@pytest.mark.slow
def test_a_rollback_past_a_window_is_found_wrong(tmp_path: Path) -> None:
    found = check("mistral", cut("mistral", tmp_path, 2), window=16)
    assert (found.same_graph, found.rollback_passed) == (0.0, False)
    assert found.rollback > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [0, 1])
def test_a_stage_with_a_changed_weight_is_caught(damaged: int, tmp_path: Path) -> None:
    stages = cut("llama", tmp_path, 2)
    model = CORE.read_model(stages[damaged][0])
    largest = max(constants(model), key=lambda node: node.data.size)
    replace(largest, largest.data * np.float32(1.001))
    wrong = tmp_path / "damaged.xml"
    ov.save_model(model, wrong, compress_to_fp16=False)
    right, layers = stages[damaged]
    ids = np.arange(ids_needed(0))
    assert same_graph(whole_ir("llama"), right, layers, ids, threads=1) == 0.0
    assert same_graph(whole_ir("llama"), wrong, layers, ids, threads=1) > 0.0
    stages[damaged] = (wrong, stages[damaged][1])
    with pytest.raises(BuildError, match=r"the stages differ from the whole model by .* more than 0"):
        check("llama", stages)
