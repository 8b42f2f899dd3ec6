"""Rewritten linear layers compute what they computed before, and what cannot be rewritten is left alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from openvino import opset15 as ops

from fleetchat.cutter import cut, tuning
from fleetchat.cutter.convert import convert_gguf
from fleetchat.cutter.cut import cut_model
from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.cutter.repair import repair
from fleetchat.cutter.selfcheck import self_check
from fleetchat.cutter.tuning import tune
from tests.cutter.fixture_models import CORE, compiled
from tests.cutter.tiny_gguf import LAYERS, write_gguf

ROWS = 3
GROUP = 32


@pytest.fixture(scope="module")
def repaired(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as a build keeps it."""
    folder = tmp_path_factory.mktemp("repaired")
    model = CORE.read_model(convert_gguf(tiny_gguf, folder))
    with GgufFile(tiny_gguf) as file:
        repair(model, file, lambda done, total: None)
    ov.save_model(model, folder / "repaired.xml", compress_to_fp16=False)
    return folder / "repaired.xml"


def logits(model: ov.Model) -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, 256, 40)
    inputs = {
        "input_ids": ids[np.newaxis],
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[np.newaxis],
        "beam_idx": np.zeros(1, np.int32),
    }
    return np.array(compiled(model)(inputs)[0])


def kinds(model: ov.Model) -> Counter[str]:
    return Counter(node.get_type_name() for node in model.get_ordered_ops())


@pytest.mark.slow
def test_a_repaired_model_is_merged(repaired: Path) -> None:
    model = CORE.read_model(repaired)
    before = kinds(model)
    assert tune(model) == 5 * LAYERS
    np.testing.assert_array_equal(logits(model), logits(CORE.read_model(repaired)))
    after = kinds(model)
    # q, k and v, gate and up: three products less a layer, and an addition less for each of them
    assert before["MatMul"] - after["MatMul"] == 3 * LAYERS
    assert before["Add"] - after["Add"] == 3 * LAYERS


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0])
def test_merging_changes_no_bit(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    xml = convert_gguf(write_gguf(tmp_path / "tiny.gguf", kind=kind), tmp_path)
    model = CORE.read_model(xml)
    assert tune(model) == 5 * LAYERS
    np.testing.assert_array_equal(logits(model), logits(CORE.read_model(xml)))


@pytest.mark.slow
def test_what_is_tuned_is_left_alone(repaired: Path) -> None:
    model = CORE.read_model(repaired)
    tune(model)
    before = kinds(model)
    assert not tune(model)
    assert kinds(model) == before


@pytest.mark.slow
def test_large_matrices_are_left_alone(repaired: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LARGEST_MERGED", 1)
    assert tune(CORE.read_model(repaired)) == 0


@pytest.mark.slow
def test_stages_stay_as_they_are_when_their_attention_would_not_fuse(
    repaired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([0, 1, 1, 1, 1, 1, 1])  # layers found fused: none in the first stage as it is rewritten
    monkeypatch.setattr(cut, "fused_attention", lambda compiled: (1, next(counts)))
    result = cut_model(repaired, tmp_path, stages=3, ranges=None, tuned=True, on_progress=lambda *_: None)
    assert not result.tuned
    products = [kinds(CORE.read_model(stage.xml))["MatMul"] for stage in result.stages]
    result = cut_model(repaired, tmp_path, stages=3, ranges=None, on_progress=lambda *_: None)
    assert products == [kinds(CORE.read_model(stage.xml))["MatMul"] for stage in result.stages]


@pytest.mark.slow
def test_a_tuned_chain_is_the_model_as_it_was_to_the_bit(repaired: Path, tmp_path: Path) -> None:
    result = cut_model(repaired, tmp_path, stages=2, ranges=None, tuned=True, on_progress=lambda *_: None)
    assert result.tuned
    check = self_check(repaired, [stage.xml for stage in result.stages], threads=1)
    assert (check.same_graph, check.rollback_passed) == (0.0, True)


@dataclass(frozen=True)
class Form:
    """A compressed weight: stored type, zero points ("each", "one" or none), groups or whole rows."""

    stored: str = "u4"
    zero: str = "each"
    grouped: bool = True
    number: str = "f16"


def weight(form: Form, outputs: int, groups: int, random: np.random.Generator) -> ov.Node:
    """[outputs, groups * GROUP], as converters write it."""
    inner = [groups, GROUP] if form.grouped else [groups * GROUP]
    of_group = [groups, 1] if form.grouped else [1]
    values = ops.convert(_stored(form.stored, [outputs, *inner], random), form.number)
    if form.zero != "none":
        shape = [outputs, *of_group] if form.zero == "each" else [1] * (len(of_group) + 1)
        values = ops.subtract(values, ops.convert(_stored(form.stored, shape, random), form.number))
    scale = random.uniform(0.01, 0.1, [outputs, *of_group]).astype(form.number.replace("f", "float"))
    values = ops.multiply(values, ops.constant(scale))
    if form.grouped:
        values = ops.reshape(values, ops.constant(np.array([outputs, groups * GROUP])), special_zero=False)
    return ops.convert(values, "f32") if form.number != "f32" else values


def _stored(kind: str, shape: list[int], random: np.random.Generator) -> ov.Node:
    tensor = ov.Tensor(getattr(ov.Type, kind), ov.Shape(shape))
    memory = tensor.data.reshape(-1).view(np.uint8)
    memory[:] = random.integers(0, 256, memory.size)
    return ops.constant(tensor, shared_memory=False)


def products(forms: list[tuple[Form, int]], groups: int) -> ov.Model:
    """All of them read the same rows."""
    random = np.random.default_rng(len(forms))
    rows = ops.parameter([1, -1, groups * GROUP], np.float32, name="rows")
    results = [
        ops.matmul(rows, weight(form, outputs, groups, random), False, True) for form, outputs in forms
    ]
    return ov.Model([ops.result(result) for result in results], [rows], "products")


def run(model: ov.Model) -> list[np.ndarray]:
    width = model.input(0).get_partial_shape()[2].get_length()
    rows = np.random.default_rng(3).standard_normal((1, ROWS, width)).astype(np.float32)
    found = compiled(model)({"rows": rows})
    return [np.array(found[index]) for index in range(len(model.outputs))]


FORMS = st.builds(
    Form,
    stored=st.sampled_from(["u4", "i4", "u8", "i8"]),
    zero=st.sampled_from(["each", "one", "none"]),
    grouped=st.booleans(),
    number=st.sampled_from(["f16", "f32"]),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(FORMS, st.integers(1, 40)), min_size=1, max_size=3), st.booleans(), st.integers(1, 3)
)
def test_any_weights_that_read_the_same_rows_give_the_same_results(
    forms: list[tuple[Form, int]], alike: bool, groups: int
) -> None:
    if alike:
        forms = [(forms[0][0], outputs) for _, outputs in forms]
    expected = run(products(forms, groups))
    model = products(forms, groups)
    tune(model)
    for ours, theirs in zip(run(model), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


def test_only_weights_of_one_form_are_merged() -> None:
    plain = Form(zero="none")
    model = products([(plain, 8), (Form(), 8), (plain, 16), (Form(stored="u8"), 8)], 2)
    expected = run(products([(plain, 8), (Form(), 8), (plain, 16), (Form(stored="u8"), 8)], 2))
    assert tune(model) == 2
    for ours, theirs in zip(run(model), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("outputs", [7, 9])
def test_zero_points_that_share_a_byte_with_the_next_matrix_are_left_alone(outputs: int) -> None:
    assert not tune(products([(Form(), outputs), (Form(), 8)], 1))


def test_one_zero_point_for_all_is_left_alone() -> None:
    assert not tune(products([(Form(zero="one"), 8), (Form(zero="one"), 8)], 2))


def test_a_weight_that_is_used_twice_is_left_alone() -> None:
    rows = ops.parameter([1, -1, GROUP], np.float32, name="rows")
    shared = weight(Form(), 8, 1, np.random.default_rng(0))
    doubled = ops.multiply(rows, np.float32(2))
    results = [ops.result(ops.matmul(source, shared, False, True)) for source in (rows, doubled)]
    model = ov.Model(results, [rows], "tied")
    assert not tune(model)
