from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetchat.errors import InputError
from fleetchat.fleet.shapes import SHAPES, find_shape, weight_bytes

CONFIGURATION = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("name", "billions"),
    [("smollm2-135m", 0.1345), ("llama-3.1-8b", 8.03), ("llama-3.3-70b", 70.55), ("qwen3-0.6b", 0.596)],
)
def test_the_weights_of_known_models(name: str, billions: float) -> None:
    assert find_shape(name).values / 1e9 == pytest.approx(billions, rel=0.005)


def test_weights_have_scales() -> None:
    assert [weight_bytes(32_000, bits) for bits in (4, 8, 16)] == [18_000, 33_000, 64_000]


def test_a_cell_in_both_precisions() -> None:
    shape = SHAPES["llama-3.1-8b"]
    assert (shape.cell_bytes("exact"), shape.cell_bytes("fast")) == (8192, 2048 + 128)


def test_a_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGURATION))
    read = find_shape(str(tmp_path / "config.json"))
    assert read.values == SHAPES["smollm2-135m"].values
    assert find_shape(str(tmp_path)) == read
    (tmp_path / "config.json").write_text(json.dumps({"text_config": CONFIGURATION}))
    assert find_shape(str(tmp_path)) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no such JSON document"),
        ("[]", "it is no such JSON document"),
        ("{}", "'hidden_size' is missing"),
        (json.dumps(CONFIGURATION | {"vocab_size": 0}), "it is no such JSON document"),
        (json.dumps(CONFIGURATION | {"hidden_size": "many"}), "it is no such JSON document"),
    ],
)
def test_what_is_no_configuration(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=said):
        find_shape(str(tmp_path / "config.json"))


def test_an_unknown_model_is_named_with_its_nearest() -> None:
    with pytest.raises(InputError, match=r"'llama-3.1-7b' is not known; the nearest is"):
        find_shape("llama-3.1-7b")
    with pytest.raises(InputError, match="cannot be read"):
        find_shape("nowhere/config.json")
