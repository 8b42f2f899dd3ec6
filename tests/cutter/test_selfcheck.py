"""The self-check passes what is equal and catches what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as ops

from fleetchat.cutter.cut import cut_model
from fleetchat.cutter.selfcheck import TOLERANCE, UNUSABLE, difference, likely_ids, self_check, tolerance_for
from fleetchat.cutter.trial import Trial
from fleetchat.errors import BuildError
from tests.cutter.fixture_models import CORE, FAMILIES, compiled, whole_ir


def cut(family: str, folder: Path, stages: int = 2) -> list[Path]:
    result = cut_model(
        whole_ir(family), folder, stages=stages, ranges=None, on_progress=lambda step, done, total: None
    )
    return [stage.xml for stage in result.stages]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_good_chain_passes(family: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    check = self_check(
        whole_ir(family),
        cut(family, tmp_path),
        threads=1,
        on_progress=lambda step, done, total: steps.append((done, total)),
    )
    assert check.same_graph == 0.0
    assert 0 < check.same_mathematics <= 1e-5
    assert 0 < check.rollback <= 1e-5
    assert check.rollback_passed
    assert 0.1 < check.largest_activation < 100
    assert steps == [(0, 5), (1, 5), (2, 5), (3, 5), (5, 5)]


@pytest.mark.slow
def test_one_stage_has_no_boundary_to_measure(tmp_path: Path) -> None:
    check = self_check(whole_ir("llama"), cut("llama", tmp_path, stages=1), threads=1)
    assert (check.same_graph, check.largest_activation) == (0.0, 0.0)


@pytest.mark.slow
def test_a_rollback_past_a_window_is_found_wrong(tmp_path: Path) -> None:
    xmls = cut("mistral", tmp_path)
    check = self_check(whole_ir("mistral"), xmls, window=16, threads=1)
    assert (check.same_graph, check.rollback_passed) == (0.0, False)
    assert check.rollback > 0.1


@pytest.mark.slow
def test_a_window_too_long_to_try_never_passes(tmp_path: Path) -> None:
    check = self_check(whole_ir("llama"), cut("llama", tmp_path), window=4096, threads=1)
    assert check.rollback <= TOLERANCE
    assert not check.rollback_passed


@pytest.mark.slow
def test_a_stage_with_a_changed_weight_is_caught(tmp_path: Path) -> None:
    xmls = cut("llama", tmp_path)
    model = CORE.read_model(xmls[1])
    largest = max(constants(model), key=lambda node: node.data.size)
    replace(largest, largest.data * np.float32(1.001))
    damaged = tmp_path / "damaged.xml"
    ov.save_model(model, damaged, compress_to_fp16=False)
    with pytest.raises(BuildError, match=r"the stages differ from the whole model by .* more than 0"):
        self_check(whole_ir("llama"), [xmls[0], damaged], threads=1)


@pytest.mark.slow
def test_logits_that_are_not_finite_are_caught(tmp_path: Path) -> None:
    xmls = cut("qwen3", tmp_path)
    model = CORE.read_model(xmls[0])
    largest = max(constants(model), key=lambda node: node.data.size)
    replace(largest, np.full_like(largest.data, np.nan))
    damaged = tmp_path / "damaged.xml"
    ov.save_model(model, damaged, compress_to_fp16=False)
    with pytest.raises(BuildError, match="logits of another shape, or not finite"):
        self_check(whole_ir("qwen3"), [damaged, xmls[1]], threads=1)


def constants(model: ov.Model) -> list[ov.Node]:
    found = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    return [node for node in found if node.get_element_type() == ov.Type.f32]


def replace(constant: ov.Node, values: np.ndarray) -> None:
    for consumer in list(constant.output(0).get_target_inputs()):
        consumer.replace_source_output(ops.constant(values).output(0))


def test_the_difference_never_hides_what_is_not_a_number() -> None:
    ones, holes = np.ones((2, 3), np.float32), np.array([[1, np.nan, 1], [1, 1, 1]], np.float32)
    assert difference(ones, ones) == 0.0
    assert difference(ones, ones + np.float32(0.5)) == 0.5
    assert difference(holes, holes) == UNUSABLE
    assert difference(ones, np.full((2, 3), np.inf, np.float32)) == UNUSABLE
    assert difference(ones, ones[:1]) == UNUSABLE
    assert difference(ones[:0], ones[:0]) == UNUSABLE


def test_the_tolerance_grows_with_the_logits() -> None:
    assert tolerance_for(np.array([[-2.0, 5.0]], np.float32)) == TOLERANCE
    assert tolerance_for(np.array([[-40.0, 5.0]], np.float32)) == pytest.approx(4e-4)


def test_the_tokens_are_the_same_at_each_build() -> None:
    whole = compiled(whole_ir("llama"))
    ids = likely_ids(whole, 30)
    np.testing.assert_array_equal(ids, likely_ids(whole, 30))
    assert len(set(ids.tolist())) > 10


def test_a_trial_hides_the_newest_cells_and_counts_on() -> None:
    trial = Trial([compiled(whole_ir("llama"))])
    trial.feed(np.array([1, 2, 3, 4]))
    trial.hide(2)
    trial.feed(np.array([5]))
    trial.hide(2)
    assert trial.mask == [1, 0, 0, 0, 0]
    assert trial.length == 1
