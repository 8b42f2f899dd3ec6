"""What a model weighs, from its configuration: for plans before anything is built."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.cutter.recipe import known_recipes
from fleetchat.errors import InputError
from fleetchat.paths import shipped
from fleetchat.spelling import nearest

GROUP_BITS = {4: 0.5, 8: 0.25, 16: 0.0}
"""Bits that the scales and zero points add to each weight: 16 for 32 values at 4 bits, for 64 at 8 bits."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """`tied`: embedding and head are one table; the first and the last stage then each hold it."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool

    @property
    def layer_values(self) -> int:
        """Weights of one layer: queries, keys, values, output; gate, up and down."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def table_values(self) -> int:
        """Weights of the embedding, and of the head."""
        return self.vocabulary * self.hidden

    @property
    def values(self) -> int:
        """All weights."""
        return self.layers * self.layer_values + self.table_values * (1 if self.tied else 2)

    def cell_bytes(self, precision: str) -> int:
        """Of one position in one layer: keys and values, one byte each and a scale a head in `fast`."""
        values = 2 * self.kv_heads * self.head_size
        return 4 * values if precision == "exact" else values + 8 * 2 * self.kv_heads


def weight_bytes(values: int, bits: int) -> int:
    """Bytes of so many weights with their scales."""
    return round(values * (bits + GROUP_BITS[bits]) / 8)


SHAPES = {
    shape.name: shape
    for shape in (
        ModelShape("smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, True),
        ModelShape("smollm2-1.7b", 24, 2048, 32, 32, 64, 8192, 49152, True),
        ModelShape("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, True),
        ModelShape("llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, True),
        ModelShape("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, False),
        ModelShape("llama-3.3-70b", 80, 8192, 64, 8, 128, 28672, 128256, False),
        ModelShape("qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936, True),
        ModelShape("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, False),
        ModelShape("mistral-7b-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, False),
        ModelShape("phi-4-mini", 32, 3072, 24, 8, 128, 8192, 200064, True),
        ModelShape("gemma-3-4b", 34, 2560, 8, 4, 256, 10240, 262208, True),
    )
}


def find_shape(name: str) -> ModelShape:
    """A known model, or a `config.json` by its path. Raises InputError."""
    if name in SHAPES:
        return SHAPES[name]
    path = Path(name)
    if path.suffix == ".json" or path.is_dir():
        return read_shape(path / "config.json" if path.is_dir() else path)
    raise InputError(
        f"the shape of the model {name!r} is not known{nearest(name, SHAPES)}",
        hint=f"name the model's config.json, or one of {', '.join(SHAPES)}",
    )


def known_layers(recipe: str) -> int | None:
    """Layers of the model of a shipped recipe, before it is fetched; None for a recipe of the user's own."""
    file = known_recipes().get(recipe)
    if recipe not in SHAPES or file is None or file.parent != shipped("shards"):
        return None
    return SHAPES[recipe].layers


def read_shape(path: Path) -> ModelShape:
    """Raises InputError for a file that is not the configuration of a model of the usual kind."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        document = document.get("text_config", document)
        return _from_configuration(path.parent.name or path.name, document)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = (
            f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else "it is no such JSON document"
        )
        raise InputError(f"{path} is not the configuration of a language model: {what}") from error


def _from_configuration(name: str, document: dict[str, Any]) -> ModelShape:
    hidden, heads = int(document["hidden_size"]), int(document["num_attention_heads"])
    shape = ModelShape(
        name=name,
        layers=int(document["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(document.get("num_key_value_heads") or heads),
        head_size=int(document.get("head_dim") or hidden // heads),
        intermediate=int(document["intermediate_size"]),
        vocabulary=int(document["vocab_size"]),
        tied=bool(document.get("tie_word_embeddings", False)),
    )
    numbers = (shape.layers, shape.hidden, shape.heads, shape.head_size, shape.intermediate, shape.vocabulary)
    if not all(0 < number < 2**31 for number in numbers):
        raise ValueError("a number is out of range")
    return shape
