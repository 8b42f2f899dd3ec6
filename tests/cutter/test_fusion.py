"""Fusion is injected where it is missing, proved on the compiled model, and taken away for a control."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest

from fleetchat.cutter.fusion import fused_attention, inject_fusion, strip_gather
from fleetchat.cutter.trial import FloatArray, Trial
from tests.cutter.fixture_models import CORE, FAMILIES, LAYERS, VOCABULARY, compiled, whole_ir
from tests.cutter.toy_model import Toy


def logits_of(model: ov.CompiledModel, vocabulary: int = VOCABULARY) -> FloatArray:
    trial = Trial([model])
    random = np.random.default_rng(3)
    return np.concatenate([trial.feed(random.integers(0, vocabulary, rows)) for rows in (20, 1, 1, 4)])


def stripped(family: str) -> ov.Model:
    """As plain MakeStateful leaves a model: neither Gathers nor initialisers."""
    model = CORE.read_model(whole_ir(family))
    assert strip_gather(model) == 2 * LAYERS
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ReadValue":
            node.set_arguments([])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_injection_gives_back_what_was_stripped(family: str) -> None:
    original = compiled(whole_ir(family))
    model = stripped(family)
    assert inject_fusion(model) == 4 * LAYERS  # an initialiser and a Gather for each K and V
    injected = compiled(model)
    assert fused_attention(injected) == (LAYERS, LAYERS)
    np.testing.assert_array_equal(logits_of(injected), logits_of(original))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_control_is_unfused_and_says_the_same(family: str) -> None:
    model = CORE.read_model(whole_ir(family))
    strip_gather(model)
    control = compiled(model)
    assert fused_attention(control)[1] == 0
    assert "beam_idx" not in {port.any_name for port in control.inputs}
    np.testing.assert_allclose(logits_of(control), logits_of(compiled(whole_ir(family))), rtol=0, atol=1e-5)


def test_a_model_that_has_everything_is_left_alone() -> None:
    model = CORE.read_model(whole_ir("llama"))
    before = [node.get_friendly_name() for node in model.get_ordered_ops()]
    assert inject_fusion(model) == 0
    assert [node.get_friendly_name() for node in model.get_ordered_ops()] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gather", "initialise", "added"), [(False, True, 4), (True, False, 4), (False, False, 8)]
)
def test_only_what_is_missing_is_added(gather: bool, initialise: bool, added: int) -> None:
    model = Toy([4, 4], gather=gather, initialise=initialise).model
    assert inject_fusion(model) == added
    injected = compiled(model)
    assert fused_attention(injected) == (2, 2)
    assert injected.input("beam_idx").get_element_type() == ov.Type.i32
    complete = compiled(Toy([4, 4]).model)
    np.testing.assert_array_equal(logits_of(injected, 32), logits_of(complete, 32))


@pytest.mark.slow
def test_a_beam_index_of_the_wrong_type_is_corrected() -> None:
    """With an i64 index nothing fuses."""
    model = Toy([4, 4], gather=False, wide_beam=True).model
    assert model.input("beam_idx").get_element_type() == ov.Type.i64
    inject_fusion(model)
    assert fused_attention(compiled(model)) == (2, 2)
