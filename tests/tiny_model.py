"""A tiny Llama-like model with random weights, built in well under a second without torch.

`write_tiny_model` makes a folder that looks like an exported OpenVINO IR (stateful, optimum style), so
that it can be the `path` source of a recipe. `write_tiny_stage` makes one stage of the same model
in the form that the cutter writes, so that engine, peer and fleet tests do not need the cutter.

Token id = byte value for 0 … 255, then the three special tokens. The weights are scaled so that greedy
text is diverse, mostly printable, and its logits are far apart compared with rounding noise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ENDOFTEXT_ID, IM_START_ID, IM_END_ID = 256, 257, 258
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of the model; two equal values give byte-identical weights."""

    layers: int = 4
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = SMALLEST_VOCABULARY
    seed: int = 0
    tied: bool = False

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_values_per_layer(self) -> int:
        """Scalars one cell holds in one layer: keys and values."""
        return 2 * self.kv_heads * self.head_size


Weights = dict[str, NDArray[np.float32]]


@cache
def tiny_weights(shape: TinyShape) -> Weights:
    """All weights, drawn in a fixed order; matrices are [outputs, inputs]."""
    random = np.random.default_rng(shape.seed)

    def matrix(rows: int, columns: int, gain: float) -> NDArray[np.float32]:
        scale = gain / float(np.sqrt(columns))
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    kv_width = shape.kv_heads * shape.head_size
    weights: Weights = {
        "embedding": random.standard_normal((shape.vocabulary, shape.hidden)).astype(np.float32)
    }
    for layer in range(shape.layers):
        weights |= {
            f"{layer}.q": matrix(shape.hidden, shape.hidden, 1.6),
            f"{layer}.k": matrix(kv_width, shape.hidden, 1.6),
            f"{layer}.v": matrix(kv_width, shape.hidden, 1.6),
            f"{layer}.o": matrix(shape.hidden, shape.hidden, 1.6),
            f"{layer}.gate": matrix(2 * shape.hidden, shape.hidden, 1.5),
            f"{layer}.up": matrix(2 * shape.hidden, shape.hidden, 1.5),
            f"{layer}.down": matrix(shape.hidden, 2 * shape.hidden, 1.5),
        }
    head = weights["embedding"] if shape.tied else matrix(shape.vocabulary, shape.hidden, 4.0)
    if not shape.tied:  # rows of ids that are no printable ASCII are shrunk: the text can be read
        printable = np.isin(np.arange(shape.vocabulary), np.r_[32:127, 10])
        head[~printable] *= 0.45
    weights["head"] = head
    return weights


def _integers(*values: int) -> ov.Node:
    return op.constant(np.array(values, dtype=np.int64))


def _linear(x: ov.Output, weight: NDArray[np.float32]) -> ov.Node:
    return op.matmul(x, op.constant(weight), False, True)


def _normalised(x: ov.Output) -> ov.Node:
    """RMSNorm with a gain of one."""
    power = op.reduce_mean(op.power(x, op.constant(np.float32(2))), _integers(-1), True)
    root = op.sqrt(op.add(power, op.constant(np.float32(1e-5))))
    gain = op.constant(np.ones((1, 1, 1), dtype=np.float32))
    return op.multiply(gain, op.multiply(x, op.divide(op.constant(np.float32(1)), root)))


def _dimension(x: ov.Output, axis: int) -> ov.Node:
    """A size of `x` as i64 [1]."""
    return op.gather(op.shape_of(x), _integers(axis), op.constant(np.int64(0)))


def _scalar(x: ov.Output) -> ov.Node:
    return op.squeeze(x, op.constant(np.int64(0)))


def _rotary(positions: ov.Output, head_size: int) -> tuple[ov.Node, ov.Node]:
    """Cosine and sine [B, 1, S, head size] of the logical positions."""
    frequencies = 1.0 / 10000.0 ** (np.arange(0, head_size, 2, dtype=np.float32) / head_size)
    column = op.constant(frequencies.reshape(1, -1, 1).astype(np.float32))
    row = op.convert(op.unsqueeze(positions, _integers(1)), "f32")
    angles = op.transpose(op.matmul(column, row, False, False), _integers(0, 2, 1))
    doubled = op.concat([angles, angles], -1)
    return op.unsqueeze(op.cos(doubled), _integers(1)), op.unsqueeze(op.sin(doubled), _integers(1))


def _rotated(x: ov.Output, cosine: ov.Output, sine: ov.Output, head_size: int) -> ov.Node:
    half = head_size // 2
    first = op.slice(x, _integers(0), _integers(half), _integers(1), _integers(3))
    second = op.slice(x, _integers(half), _integers(head_size), _integers(1), _integers(3))
    turned = op.concat([op.multiply(second, op.constant(np.float32(-1))), first], -1)
    return op.add(op.multiply(x, cosine), op.multiply(turned, sine))


class _Builder:
    """Grows one stage, layer by layer; what layers share is made once."""

    def __init__(
        self, shape: TinyShape, stage_input: ov.Node, position_ids: ov.Node, beam_idx: ov.Node
    ) -> None:
        self.shape = shape
        self.weights = tiny_weights(shape)
        self.stage_input = stage_input
        self.attention_mask = op.parameter([-1, -1], np.int64, name="attention_mask")
        self.beam_idx = beam_idx
        self.cosine, self.sine = _rotary(position_ids.output(0), shape.head_size)
        self.mask: ov.Node | None = None
        self.sinks: list[ov.Node] = []

    def _heads(self, x: ov.Output, weight: str, count: int) -> ov.Node:
        split = op.reshape(
            _linear(x, self.weights[weight]), _integers(0, 0, count, self.shape.head_size), True
        )
        return op.transpose(split, _integers(0, 2, 1, 3))

    def _cached(self, fresh: ov.Output, name: str) -> tuple[ov.Node, ov.Node]:
        """(past, past and fresh rows); the new state is what the Assign stores."""
        shape = self.shape
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, shape.kv_heads, -1, shape.head_size])
        info.data_type = ov.Type.f32
        info.variable_id = name
        variable = Variable(info)
        sizes = op.concat(
            [
                _dimension(self.stage_input, 0),
                _integers(shape.kv_heads),
                _integers(0),
                _integers(shape.head_size),
            ],
            0,
        )
        empty = op.broadcast(op.constant(np.float32(0)), sizes)
        stored = op.read_value(empty, variable)
        past = op.gather(stored, self.beam_idx, op.constant(np.int64(0)))
        present = op.concat([past, fresh], 2)
        self.sinks.append(op.assign(present, variable))
        return past, present

    def _repeated(self, x: ov.Output) -> ov.Node:
        """Key or value heads once per query head: Unsqueeze, Broadcast, Reshape, which the CPU fuses."""
        shape = self.shape
        groups = shape.heads // shape.kv_heads
        target = op.constant(np.array([1, 1, groups, 1, 1], dtype=np.int64))
        wide = op.broadcast(op.unsqueeze(x, _integers(2)), target, broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, _integers(0, shape.heads, -1, shape.head_size), True)

    def _causal_mask(self, past: ov.Output, rows: ov.Output) -> ov.Node:
        """f32 [B, 1, S, physical]: causal by physical index, and zero cells of `attention_mask` hidden."""
        length = _scalar(_dimension(past, 2))
        total = op.add(length, _scalar(_dimension(rows, 1)))
        one = op.constant(np.int64(1))
        columns = op.unsqueeze(op.range(op.constant(np.int64(0)), total, one, "i64"), _integers(0))
        lines = op.unsqueeze(op.range(length, total, one, "i64"), _integers(1))
        causal = op.unsqueeze(op.less_equal(columns, lines), _integers(0, 1))
        alive = op.unsqueeze(op.convert(self.attention_mask, "boolean"), _integers(1, 2))
        visible = op.logical_and(causal, alive)
        return op.select(visible, op.constant(np.float32(0)), op.constant(np.finfo(np.float32).min))

    def layer(self, x: ov.Output, index: int) -> ov.Node:
        shape, weights = self.shape, self.weights
        normal = _normalised(x)
        query = _rotated(
            self._heads(normal, f"{index}.q", shape.heads), self.cosine, self.sine, shape.head_size
        )
        key = _rotated(
            self._heads(normal, f"{index}.k", shape.kv_heads), self.cosine, self.sine, shape.head_size
        )
        value = self._heads(normal, f"{index}.v", shape.kv_heads)
        past, keys = self._cached(key, f"past_key_values.{index}.keypresent.{index}.key")
        _, values = self._cached(value, f"past_key_values.{index}.valuepresent.{index}.value")
        if self.mask is None:
            self.mask = self._causal_mask(past, normal)
        attended = op.scaled_dot_product_attention(
            query, self._repeated(keys), self._repeated(values), self.mask, causal=False
        )
        joined = op.reshape(
            op.transpose(attended, _integers(0, 2, 1, 3)), _integers(0, 0, shape.hidden), True
        )
        x = op.add(x, _linear(joined, weights[f"{index}.o"]))
        normal = _normalised(x)
        gated = op.multiply(
            op.swish(_linear(normal, weights[f"{index}.gate"])), _linear(normal, weights[f"{index}.up"])
        )
        return op.add(x, _linear(gated, weights[f"{index}.down"]))

    def head(self, x: ov.Output, logit_rows: ov.Node | None) -> ov.Node:
        normal = _normalised(x)
        if logit_rows is not None:
            flat = op.reshape(normal, _integers(-1, self.shape.hidden), False)
            normal = op.gather(flat, logit_rows, op.constant(np.int64(0)))
        return _linear(normal, self.weights["head"])


def tiny_graph(
    shape: TinyShape, first_layer: int = 0, last_layer: int | None = None, *, gather_rows: bool = False
) -> ov.Model:
    """Layers `first_layer` … `last_layer` as one model.

    With the last layer come the final norm and the head; `gather_rows` puts the Gather on `logit_rows`
    before the head, as the cutter does. Without it the whole model looks like an export.
    """
    last_layer = shape.layers - 1 if last_layer is None else last_layer
    position_ids = op.parameter([-1, -1], np.int64, name="position_ids")
    beam_idx = op.parameter([-1], np.int32, name="beam_idx")
    if first_layer == 0:
        stage_input = op.parameter([-1, -1], np.int64, name="input_ids")
        x: Any = op.gather(
            op.constant(tiny_weights(shape)["embedding"]), stage_input, op.constant(np.int64(0))
        )
    else:
        stage_input = op.parameter([-1, -1, shape.hidden], np.float32, name="inputs_embeds")
        x = stage_input
    builder = _Builder(shape, stage_input, position_ids, beam_idx)
    for index in range(first_layer, last_layer + 1):
        x = builder.layer(x, index)
    parameters = [stage_input, builder.attention_mask, position_ids, beam_idx]
    if last_layer == shape.layers - 1:
        logit_rows = op.parameter([-1], np.int64, name="logit_rows") if gather_rows else None
        parameters += [logit_rows] if logit_rows is not None else []
        x = builder.head(x, logit_rows)
        name = "logits"
    else:
        name = "hidden_states"
    result = op.result(x)
    model = ov.Model([result], builder.sinks, parameters, "tiny")
    for parameter in parameters:
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    model.outputs[0].get_tensor().set_names({name})
    # What optimum-intel writes; a stage that drops it computes with another cache than the whole model.
    model.set_rt_info("8.0", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])
    model.set_rt_info("f16", ["runtime_options", "KV_CACHE_PRECISION"])
    return model


def write_tiny_stage(
    xml: Path, first_layer: int = 0, last_layer: int | None = None, *, shape: TinyShape = TinyShape()
) -> Path:
    """Write one stage as the cutter would; returns `xml`."""
    ov.save_model(tiny_graph(shape, first_layer, last_layer, gather_rows=True), xml, compress_to_fp16=False)
    return xml


def write_tiny_model(
    folder: Path,
    *,
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocabulary: int = SMALLEST_VOCABULARY,
    seed: int = 0,
    tied: bool = False,
) -> TinyShape:
    """Write the whole model with its tokenizer and chat template, as an exporter would."""
    if vocabulary < SMALLEST_VOCABULARY:
        raise ValueError(f"the vocabulary needs at least {SMALLEST_VOCABULARY} ids")
    shape = TinyShape(layers, hidden, heads, kv_heads, vocabulary, seed, tied)
    folder.mkdir(parents=True, exist_ok=True)
    ov.save_model(tiny_graph(shape), folder / "openvino_model.xml", compress_to_fp16=False)
    write_tiny_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8", newline="\n")
    for name, content in _configurations(shape).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return shape


def _configurations(shape: TinyShape) -> dict[str, dict[str, object]]:
    ids: dict[str, object] = {
        "bos_token_id": IM_START_ID,
        "eos_token_id": IM_END_ID,
        "pad_token_id": ENDOFTEXT_ID,
    }
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": shape.hidden,
            "intermediate_size": 2 * shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_size,
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": 2048,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": shape.tied,
            **ids,
        },
        "generation_config.json": {**ids},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 2048,
        },
    }


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level BPE (the table of GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def write_tiny_tokenizer(path: Path) -> None:
    """A byte-level tokenizer without merges: the id of a byte is its value."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokenizer = Tokenizer(
        BPE(vocab={character: byte for byte, character in enumerate(byte_characters())}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in SPECIAL_TOKENS]
    )
    tokenizer.save(str(path))
