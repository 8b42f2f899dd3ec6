"""A made-up model of a given shape as an exported folder: for sizes that no network brings here.

Layout, inputs, states and names of inputs are those of a stateful export of a Llama by optimum-intel with
INT4 weights; the weights are random (`synthetic_weights`): it speaks nonsense, at the speed of the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import sqrt
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo

from fleetchat.bench.synthetic_vocabulary import write_companions
from fleetchat.bench.synthetic_weights import Weights, random_bytes
from fleetchat.fleet.shapes import ModelShape

HEAD_GAIN = 4.0  # standard deviation of the logits: greedy text does not hang on rounding noise
ROPE_THETA = 500_000.0
EPSILON = 1e-5


def write_synthetic(
    folder: Path,
    shape: ModelShape,
    *,
    distinct_layers: Collection[int] | None = None,
    on_progress: Callable[[str], None] = lambda step: None,
) -> Path:
    """Write the model, tokenizer and configurations into `folder`; returns the path of the IR.

    `distinct_layers` None: every layer has weights of its own, as in a real model. Otherwise only those do,
    and the rest share one layer's bytes: the file is smaller, the graph is the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    xml = folder / "openvino_model.xml"
    largest = max(shape.table_values, shape.hidden * shape.intermediate // 2)
    on_progress("drawing random weights")
    with random_bytes(folder / "random.tmp", largest) as source:
        model = _graph(shape, Weights(source), distinct_layers)
        on_progress("writing the model")
        ov.save_model(model, xml, compress_to_fp16=False)
        del model
    write_companions(folder, shape)
    return xml


def _graph(shape: ModelShape, weights: Weights, distinct: Collection[int] | None) -> ov.Model:
    inputs = {
        "input_ids": op.parameter([-1, -1], np.int64, name="input_ids"),
        "attention_mask": op.parameter([-1, -1], np.int64, name="attention_mask"),
        "position_ids": op.parameter([-1, -1], np.int64, name="position_ids"),
        "beam_idx": op.parameter([-1], np.int32, name="beam_idx"),
    }
    embedding = weights.table(shape.vocabulary, shape.hidden, 1.0)
    x: ov.Node = op.gather(embedding, op.convert(inputs["input_ids"], "i32"), op.constant(np.int32(0)))
    layers = _Layers(shape, weights, inputs)
    for index in range(shape.layers):
        x = layers.add(x, index, distinct is None or index in distinct)
    x = _normalised(x, shape.hidden)
    head = (
        embedding
        if shape.tied
        else weights.table(shape.vocabulary, shape.hidden, HEAD_GAIN / sqrt(shape.hidden))
    )
    result = op.result(op.matmul(x, head, False, True))
    model = ov.Model([result], layers.sinks, list(inputs.values()), shape.name)
    for name, parameter in inputs.items():
        parameter.output(0).get_tensor().set_names({name})
    model.outputs[0].get_tensor().set_names({"logits"})
    model.set_rt_info("8.0", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])  # as optimum-intel writes it
    return model


class _Layers:
    """Grows the model layer by layer; what layers share is made once."""

    def __init__(self, shape: ModelShape, weights: Weights, inputs: dict[str, ov.Node]) -> None:
        self._shape = shape
        self._weights = weights
        self._inputs = inputs
        self._cosine, self._sine = _rotary(inputs["position_ids"], shape.head_size)
        self._mask: ov.Node | None = None
        self._gain = 1 / sqrt(2 * shape.layers)  # of what is added to the residual stream
        self.sinks: list[ov.Node] = []

    def add(self, x: ov.Node, index: int, distinct: bool) -> ov.Node:
        shape = self._shape

        def linear(rows: ov.Node, outputs: int, inputs: int, gain: float = 1.0) -> ov.Node:
            return op.matmul(
                rows, self._weights.matrix(outputs, inputs, gain, distinct=distinct), False, True
            )

        width, kv_width = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        normal = _normalised(x, shape.hidden)
        query = self._rotated(self._heads(linear(normal, width, shape.hidden), shape.heads))
        key = self._rotated(self._heads(linear(normal, kv_width, shape.hidden), shape.kv_heads))
        value = self._heads(linear(normal, kv_width, shape.hidden), shape.kv_heads)
        past, keys = self._cached(key, f"past_key_values.{index}.keypresent.{index}.key")
        _, values = self._cached(value, f"past_key_values.{index}.valuepresent.{index}.value")
        if self._mask is None:
            self._mask = _causal_mask(self._inputs["attention_mask"], past, normal)
        attended = op.scaled_dot_product_attention(
            query, self._repeated(keys), self._repeated(values), self._mask, causal=False
        )
        joined = op.reshape(op.transpose(attended, _integers(0, 2, 1, 3)), _integers(0, 0, width), True)
        x = op.add(x, linear(joined, shape.hidden, width, self._gain))
        normal = _normalised(x, shape.hidden)
        gated = op.multiply(
            op.swish(linear(normal, shape.intermediate, shape.hidden)),
            linear(normal, shape.intermediate, shape.hidden),
        )
        return op.add(x, linear(gated, shape.hidden, shape.intermediate, self._gain))

    def _heads(self, x: ov.Node, count: int) -> ov.Node:
        split = op.reshape(x, _integers(0, 0, count, self._shape.head_size), True)
        return op.transpose(split, _integers(0, 2, 1, 3))

    def _rotated(self, x: ov.Node) -> ov.Node:
        size, half = self._shape.head_size, self._shape.head_size // 2
        first = op.slice(x, _integers(0), _integers(half), _integers(1), _integers(3))
        second = op.slice(x, _integers(half), _integers(size), _integers(1), _integers(3))
        turned = op.concat([op.multiply(second, op.constant(np.float32(-1))), first], -1)
        return op.add(op.multiply(x, self._cosine), op.multiply(turned, self._sine))

    def _cached(self, fresh: ov.Node, name: str) -> tuple[ov.Node, ov.Node]:
        """(past, past and fresh rows); the latter is the new state."""
        shape = self._shape
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, shape.kv_heads, -1, shape.head_size])
        info.data_type = ov.Type.f32
        info.variable_id = name
        variable = Variable(info)
        batch = _dimension(self._inputs["input_ids"], 0)
        sizes = op.concat([batch, _integers(shape.kv_heads, 0, shape.head_size)], 0)
        stored = op.read_value(op.broadcast(op.constant(np.float32(0)), sizes), variable)
        past = op.gather(stored, self._inputs["beam_idx"], op.constant(np.int64(0)))
        present = op.concat([past, fresh], 2)
        self.sinks.append(op.assign(present, variable))
        return past, present

    def _repeated(self, x: ov.Node) -> ov.Node:
        """Key or value heads once per query head."""
        shape = self._shape
        target = op.constant(np.array([1, 1, shape.heads // shape.kv_heads, 1, 1], np.int64))
        wide = op.broadcast(op.unsqueeze(x, _integers(2)), target, broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, _integers(0, shape.heads, -1, shape.head_size), True)


def _rotary(positions: ov.Node, head_size: int) -> tuple[ov.Node, ov.Node]:
    """Cosine and sine [B, 1, S, head size] of the positions."""
    frequencies = 1.0 / ROPE_THETA ** (np.arange(0, head_size, 2, dtype=np.float32) / head_size)
    column = op.constant(frequencies.reshape(1, -1, 1).astype(np.float32))
    row = op.convert(op.unsqueeze(positions, _integers(1)), "f32")
    angles = op.transpose(op.matmul(column, row, False, False), _integers(0, 2, 1))
    doubled = op.concat([angles, angles], -1)
    return op.unsqueeze(op.cos(doubled), _integers(1)), op.unsqueeze(op.sin(doubled), _integers(1))


def _causal_mask(attention_mask: ov.Node, past: ov.Node, rows: ov.Node) -> ov.Node:
    """f32 [B, 1, S, cells]: causal by cell, and zero cells of `attention_mask` hidden."""
    axis = op.constant(np.int64(0))
    length = op.squeeze(_dimension(past, 2), axis)
    total = op.add(length, op.squeeze(_dimension(rows, 1), axis))
    one = op.constant(np.int64(1))
    columns = op.unsqueeze(op.range(op.constant(np.int64(0)), total, one, "i64"), _integers(0))
    lines = op.unsqueeze(op.range(length, total, one, "i64"), _integers(1))
    causal = op.unsqueeze(op.less_equal(columns, lines), _integers(0, 1))
    alive = op.unsqueeze(op.convert(attention_mask, "boolean"), _integers(1, 2))
    hidden = op.constant(np.finfo(np.float32).min)
    return op.select(op.logical_and(causal, alive), op.constant(np.float32(0)), hidden)


def _normalised(x: ov.Node, width: int) -> ov.Node:
    """RMSNorm with a gain of one."""
    power = op.reduce_mean(op.power(x, op.constant(np.float32(2))), _integers(-1), True)
    root = op.sqrt(op.add(power, op.constant(np.float32(EPSILON))))
    gain: NDArray[np.float32] = np.ones((1, 1, width), np.float32)
    return op.multiply(op.constant(gain), op.multiply(x, op.divide(op.constant(np.float32(1)), root)))


def _dimension(x: ov.Node, axis: int) -> ov.Node:
    """A size of `x` as i64 [1]."""
    return op.gather(op.shape_of(x), _integers(axis), op.constant(np.int64(0)))


def _integers(*values: int) -> ov.Node:
    return op.constant(np.array(values, np.int64))
