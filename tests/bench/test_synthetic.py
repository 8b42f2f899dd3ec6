"""Made-up models: the layout of real INT4 exports, in the sizes that their shape says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from tokenizers import Tokenizer

from fleetchat.bench.synthetic import write_synthetic
from fleetchat.bench.synthetic_vocabulary import SPECIALS
from fleetchat.bench.synthetic_weights import GROUP
from fleetchat.fleet.shapes import ModelShape

SHAPE = ModelShape("small", 3, 256, 4, 2, 64, 512, 1024, tied=False)
MATRICES = 7  # of a layer


@pytest.fixture(scope="module")
def xml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("synthetic"), SHAPE)


def constants(xml: Path) -> list[ov.Node]:
    return [
        node for node in ov.Core().read_model(xml).get_ordered_ops() if node.get_type_name() == "Constant"
    ]


def test_the_weights_lie_as_an_export_lays_them(xml: Path) -> None:
    found = Counter(
        (str(node.get_element_type().to_string()), tuple(node.get_output_shape(0)))
        for node in constants(xml)
        if node.get_byte_size() >= 128
    )
    groups = SHAPE.hidden // GROUP
    assert found["u4", (SHAPE.hidden, groups, GROUP)] == 2 * SHAPE.layers  # queries, output
    assert found["u4", (SHAPE.intermediate, groups, GROUP)] == 2 * SHAPE.layers  # gate, up
    assert found["u4", (SHAPE.intermediate, groups, 1)] == 2 * SHAPE.layers
    assert found["f16", (SHAPE.intermediate, groups, 1)] == 2 * SHAPE.layers
    assert found["u8", (SHAPE.vocabulary, SHAPE.hidden)] == 2  # embedding, head
    assert found["f16", (SHAPE.vocabulary, 1)] == 2


def test_every_layer_has_bytes_of_its_own_unless_told_otherwise(xml: Path, tmp_path: Path) -> None:
    packed = [node for node in constants(xml) if node.get_element_type() == ov.Type.u4]
    large = {bytes(node.data) for node in packed if node.get_byte_size() >= SHAPE.hidden * GROUP // 2}
    assert len(large) == MATRICES * SHAPE.layers
    one = write_synthetic(tmp_path, SHAPE, distinct_layers=[1])
    sizes = [path.with_suffix(".bin").stat().st_size for path in (one, xml)]
    layer = SHAPE.layer_values // 2
    assert sizes[1] - sizes[0] >= layer  # layers 0 and 2 share theirs
    assert not list(tmp_path.glob("*.tmp"))


def test_values_have_the_spread_that_keeps_activations_in_bounds(xml: Path) -> None:
    compiled = ov.Core().compile_model(xml, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    ids = np.arange(24, dtype=np.int64)[None]
    logits = compiled.create_infer_request().infer(
        {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "position_ids": ids,
            "beam_idx": np.zeros(1, np.int32),
        }
    )[0]
    assert logits.shape == (1, 24, SHAPE.vocabulary)
    assert 2 < logits.std() < 8
    assert len({int(row.argmax()) for row in logits[0]}) > 12


def test_the_tokenizer_has_the_size_of_the_vocabulary(xml: Path) -> None:
    tokenizer = Tokenizer.from_file(str(xml.parent / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == SHAPE.vocabulary
    assert tokenizer.encode("Hé", add_special_tokens=False).ids == [72, 195, 169]
    assert tokenizer.decode([72, 300, 301]) == "H w300 w301"
    config = json.loads((xml.parent / "config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == [SHAPE.vocabulary - 4, SHAPE.vocabulary - 1]
    assert tokenizer.id_to_token(config["eos_token_id"][1]) == SPECIALS[-1]
