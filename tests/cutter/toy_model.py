"""A toy language model that asks for shapes across layers in every way that exported models were seen to.

Its layers add small numbers made of *foreign* shapes to the residual stream, so that a shape that a cut got
wrong shows in the logits. Attention is not causal within a chunk: compare runs with the same chunks only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset15 as ops
from openvino.op.util import Variable, VariableInfo

HIDDEN, VOCABULARY, HEADS = 16, 32, 2


class Toy:
    """Builds the model; `head_sizes` has an entry a layer.

    `leak`: the last layer also adds the embedded tokens. `stray`: a size that counts past tokens is asked of
    an activation. `extra_input`: token_type_ids. `shaped_head`: the logits depend on the number of rows.
    `wide_beam`: beam_idx is i64. `gather` False and `initialise` False leave out what fusion needs.
    """

    def __init__(
        self,
        head_sizes: Sequence[int],
        *,
        leak: bool = False,
        stray: bool = False,
        gather: bool = True,
        initialise: bool = True,
        extra_input: bool = False,
        shaped_head: bool = False,
        wide_beam: bool = False,
    ) -> None:
        self.random = np.random.default_rng(0)
        self.gather, self.initialise, self.stray = gather, initialise, stray
        self.ids = self._input("input_ids", [-1, -1], np.int64)
        self.mask = self._input("attention_mask", [-1, -1], np.int64)
        self.beam = self._input("beam_idx", [-1], np.int64 if wide_beam else np.int32)
        self.parameters = [self.ids, self.mask] + ([self.beam] if gather or wide_beam else [])
        self.sinks: list[ov.Node] = []
        self.foreign: list[ov.Node] = []
        x = embedded = ops.gather(self._weight(VOCABULARY, HIDDEN), self.ids, np.int64(0))
        for index, size in enumerate(head_sizes):
            x = self._layer(x, index, size)
        if leak:
            x = ops.add(x, embedded)
        if extra_input:
            self.parameters.append(self._input("token_type_ids", [-1, -1], np.int64))
            x = ops.add(x, ops.unsqueeze(ops.convert(self.parameters[-1], "f32"), np.int64(2)))
        logits = ops.matmul(x, self._weight(HIDDEN, VOCABULARY), False, False)
        if shaped_head:
            logits = ops.add(logits, self._number(ops.shape_of(x)))
        logits.output(0).set_names({"logits"})
        self.model = ov.Model([ops.result(logits)], self.sinks, self.parameters, "toy")

    def _input(self, name: str, shape: list[int], dtype: type) -> ov.Node:
        parameter = ops.parameter(shape, dtype, name=name)
        parameter.output(0).set_names({name})
        return parameter

    def _weight(self, *shape: int) -> ov.Node:
        return ops.constant(self.random.normal(size=shape).astype(np.float32))

    def _layer(self, x: ov.Node, index: int, size: int) -> ov.Node:
        query, key, value = (self._heads(x, size) for _ in range(3))
        presents = [self._append(f"{index}.{kind}", new, size) for kind, new in (("k", key), ("v", value))]
        attended = ops.scaled_dot_product_attention(query, *presents, self._bias())
        rows = ops.reshape(ops.transpose(attended, [0, 2, 1, 3]), [0, 0, HEADS * size], True)
        out = ops.add(x, ops.matmul(rows, self._weight(HEADS * size, HIDDEN), False, False))
        if index == 0:
            self.foreign = self._shapes(x, query, presents[0])
        for shape in self.foreign:
            out = ops.add(out, self._number(shape))
        return out

    def _heads(self, x: ov.Node, size: int) -> ov.Node:
        """[B, S, hidden] to [B, heads, S, size]."""
        projected = ops.matmul(x, self._weight(HIDDEN, HEADS * size), False, False)
        return ops.transpose(ops.reshape(projected, [0, 0, HEADS, size], True), [0, 2, 1, 3])

    def _append(self, name: str, new: ov.Node, size: int) -> ov.Node:
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, HEADS, -1, size])
        info.data_type, info.variable_id = ov.Type.f32, name
        variable = Variable(info)
        batch = ops.gather(ops.shape_of(self.ids), [0], np.int64(0))
        empty = ops.broadcast(np.float32(0), ops.concat([batch, np.array([HEADS, 0, size])], 0))
        past = ops.read_value(empty, variable) if self.initialise else ops.read_value(variable)
        rows = ops.gather(past, self.beam, np.int64(0)) if self.gather else past
        present = ops.concat([rows, new], 2)
        self.sinks.append(ops.assign(present, variable))
        if name == "0.k":
            self.past = rows
        return present

    def _bias(self) -> ov.Node:
        """Additive mask [B, 1, 1, cells]."""
        hidden = ops.subtract(np.float32(1), ops.convert(self.mask, "f32"))
        return ops.unsqueeze(ops.multiply(hidden, np.float32(-1e4)), np.array([1, 2]))

    def _shapes(self, x: ov.Node, query: ov.Node, present: ov.Node) -> list[ov.Node]:
        """Shapes of layer 0 that all layers use: activations of rank 3, 4 and 2, past and present state."""
        flat = ops.reshape(x, [-1, HIDDEN], False)
        shapes = [ops.shape_of(node) for node in (x, query, flat, self.past, present)]
        shapes.append(ops.shape_of(self.ids, output_type="i32"))
        if self.stray:
            scores = ops.matmul(query, present, False, True)
            shapes.append(ops.shape_of(scores))
        return shapes

    def _number(self, shape: ov.Node) -> ov.Node:
        """A small number that changes when any size does."""
        weights = np.array([0.01, 0.02, 0.03, 0.05], np.float32)[: shape.get_output_shape(0)[0]]
        return ops.reduce_sum(ops.multiply(ops.convert(shape, "f32"), weights), np.int64(0))
