"""Stages in a row say bit for bit what the whole model says, and what cannot be cut is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from fleetchat.cutter.boundary import find_layers
from fleetchat.cutter.fusion import fused_attention
from fleetchat.cutter.graph import build_stage
from fleetchat.cutter.ir_file import save_ir
from fleetchat.cutter.plan import plan_stage
from fleetchat.cutter.trial import FloatArray, Trial
from fleetchat.cutter.view import view_of
from fleetchat.errors import CutRefused
from tests.cutter.fixture_models import CORE, FAMILIES, HIDDEN, VOCABULARY, compiled, whole_ir
from tests.cutter.toy_model import Toy

Ranges = Sequence[tuple[int, int]]
TWO: Ranges = ((0, 1), (2, 3))
THREE: Ranges = ((0, 0), (1, 2), (3, 3))


def stages_of(read: Callable[[], ov.Model], ranges: Ranges) -> list[ov.Model]:
    view = view_of(read())
    layers = find_layers(view)
    return [build_stage(read, view, layers, plan_stage(view, layers, *pair)) for pair in ranges]


def reader(family: str) -> Callable[[], ov.Model]:
    return lambda: CORE.read_model(whole_ir(family))


def all_logits(trial: Trial, vocabulary: int = VOCABULARY) -> list[FloatArray]:
    """A prefill, single rows, and a chunk over a filled cache."""
    random = np.random.default_rng(1)
    return [trial.feed(random.integers(0, vocabulary, rows)) for rows in (20, 1, 1, 4)]


def assert_equal(ours: Sequence[FloatArray], theirs: Sequence[FloatArray]) -> None:
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our, their)  # shapes and NaN included


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [((0, 3),), TWO, THREE], ids=["1 stage", "2 stages", "3 stages"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_chain_is_the_whole_model(family: str, ranges: Ranges) -> None:
    stages = [compiled(stage) for stage in stages_of(reader(family), ranges)]
    whole = all_logits(Trial([compiled(whole_ir(family))]))
    assert np.ptp(whole[0]) > 1  # otherwise equality proves nothing
    assert_equal(all_logits(Trial(stages)), whole)
    layers = [last - first + 1 for first, last in ranges]
    assert [fused_attention(stage) for stage in stages] == [(count, count) for count in layers]


@pytest.mark.slow
def test_shapes_of_other_stages_are_rebuilt_from_own_tensors() -> None:
    """Head sizes differ, so that own states alone do not have the shapes that layer 0 lends to all layers."""

    def read() -> ov.Model:
        return Toy([8, 4, 8, 4]).model

    whole = compiled(read())
    for ranges in (((0, 0), (1, 1), (2, 3)), ((0, 2), (3, 3))):
        stages = [compiled(stage) for stage in stages_of(read, ranges)]
        assert_equal(all_logits(Trial(stages), 32), all_logits(Trial([whole]), 32))


@pytest.mark.slow
def test_a_batch_of_two_stays_two() -> None:

    def read() -> ov.Model:
        return Toy([8, 4]).model

    first, last = (compiled(stage) for stage in stages_of(read, ((0, 0), (1, 1))))
    ids = np.random.default_rng(2).integers(0, 32, (2, 5))
    mask = np.ones((2, 5), np.int64)
    beams = np.arange(2, dtype=np.int32)
    inputs = {"input_ids": ids, "attention_mask": mask, "beam_idx": beams}
    whole = compiled(read())(inputs)[0]
    hidden = first(inputs)[0]
    rows = np.arange(10)
    logits = last({"inputs_embeds": hidden, "attention_mask": mask, "beam_idx": beams, "logit_rows": rows})[0]
    np.testing.assert_array_equal(logits, whole.reshape(10, 32))


def test_stages_have_the_interface_that_engines_expect() -> None:
    first, middle, last = stages_of(reader("llama"), THREE)
    common = ["attention_mask", "position_ids", "beam_idx"]
    assert [port.any_name for port in first.inputs] == ["input_ids", *common]
    assert [port.any_name for port in middle.inputs] == ["inputs_embeds", *common]
    assert [port.any_name for port in last.inputs] == ["inputs_embeds", *common, "logit_rows"]
    types = {port.any_name: port.get_element_type() for stage in (first, last) for port in stage.inputs}
    assert types == {
        "input_ids": ov.Type.i64,
        "inputs_embeds": ov.Type.f32,
        "attention_mask": ov.Type.i64,
        "position_ids": ov.Type.i64,
        "beam_idx": ov.Type.i32,
        "logit_rows": ov.Type.i64,
    }
    assert middle.input("inputs_embeds").get_partial_shape() == ov.PartialShape([-1, -1, HIDDEN])
    assert middle.output("hidden").get_partial_shape() == ov.PartialShape([-1, -1, HIDDEN])
    assert last.output("logits").get_partial_shape() == ov.PartialShape([-1, VOCABULARY])


def test_run_time_options_are_carried_over() -> None:
    """Without them a stage would keep its KV cache in another precision than the whole model."""
    for stage in stages_of(reader("llama"), TWO):
        assert stage.get_rt_info(["runtime_options", "KV_CACHE_PRECISION"]).astype(str) == "f16"


@pytest.mark.slow
def test_only_the_rows_asked_for_come_out_in_their_order() -> None:
    stages = [compiled(stage) for stage in stages_of(reader("qwen3"), TWO)]
    ids = np.arange(12)
    every = Trial(stages).feed(ids)
    picked = Trial(stages).feed(ids, np.array([11, 3, 3]))
    assert picked.shape == (3, VOCABULARY)
    np.testing.assert_allclose(picked, every[[11, 3, 3]], rtol=0, atol=1e-5)


def test_a_saved_stage_keeps_its_weights_as_they_are(tmp_path: Path) -> None:
    (stage,) = stages_of(reader("falcon"), ((0, 3),))
    save_ir(stage, tmp_path / "stage.xml")
    saved = CORE.read_model(tmp_path / "stage.xml")
    assert weights(saved) == weights(stage)


def weights(model: ov.Model) -> list[tuple[str, bytes]]:
    constants = (node for node in model.get_ordered_ops() if node.get_type_name() == "Constant")
    return [(node.get_element_type().get_type_name(), node.data.tobytes()) for node in constants]


def test_tokens_that_reach_every_layer_leave_one_layer() -> None:
    assert find_layers(view_of(Toy([4, 4, 4], leak=True).model)).count == 1


def test_a_size_that_counts_past_tokens_is_refused() -> None:
    with pytest.raises(CutRefused, match="is not the batch, the rows or their product"):
        stages_of(lambda: Toy([4, 4], stray=True).model, ((0, 0), (1, 1)))


def test_an_input_that_no_engine_feeds_is_refused() -> None:
    with pytest.raises(CutRefused, match=r"nothing feeds its inputs \['token_type_ids'\]"):
        stages_of(lambda: Toy([4, 4], extra_input=True).model, ((0, 0), (1, 1)))


def test_a_head_that_asks_for_the_number_of_rows_is_refused() -> None:
    with pytest.raises(CutRefused, match="depends on the number of rows"):
        stages_of(lambda: Toy([4, 4], shaped_head=True).model, ((0, 0), (1, 1)))


def test_a_file_that_changed_under_the_cut_is_noticed() -> None:
    models = [Toy([4, 4]).model, Toy([4, 4, 4]).model]
    view = view_of(models[0])
    layers = find_layers(view)
    with pytest.raises(CutRefused, match="changed while it was being cut"):
        build_stage(lambda: models[1], view, layers, plan_stage(view, layers, 0, 0))
