"""Attention that keeps its KV cache inside one fused operation: prepared, injected, proved, and taken away.

OpenVINO's CPU plugin fuses an attention with its cache only when each ReadValue has an initialiser and is
followed by a Gather over an i32 index, best a Parameter `beam_idx` (research/openvino.md section 1).
Without it, the same model runs ten times slower at long context, or returns empty tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import openvino as ov
from openvino import opset15 as ops

from fleetchat.cutter.view import TOKEN_INPUTS
from fleetchat.errors import CutRefused

BEAM_INDEX = "beam_idx"
_FUSED_OUTPUTS = 3  # attention output, present K, present V


def fused_attention(compiled: ov.CompiledModel) -> tuple[int, int]:
    """Count the attention operations of the runtime model, and those of them that hold their KV cache."""
    attention = [
        node.get_output_size()
        for node in compiled.get_runtime_model().get_ops()
        if node.get_rt_info()["layerType"].astype(str) == "ScaledDotProductAttention"
    ]
    return len(attention), sum(outputs == _FUSED_OUTPUTS for outputs in attention)


def inject_fusion(model: ov.Model) -> int:
    """Add what is missing for fusion, in place: initialisers, Gathers, the `beam_idx` Parameter.

    Only KV states, which have a batch axis first and one more dynamic axis, are touched. Returns the number
    of initialisers and Gathers added; 0 leaves the model as it was.
    """
    added = 0
    for read_value in _kv_reads(model):
        if read_value.get_input_size() == 0:
            _initialise(read_value, _growing_shape(read_value, _batch_of(model)))
            added += 1
        if not _has_gather(read_value):
            _insert_gather(read_value, _beam_index(model))
            added += 1
    if added:
        model.validate_nodes_and_infer_types()
    return added


def strip_gather(model: ov.Model) -> int:
    """Make the control for `bench fusion`, in place: no Gather, an initialiser of shape {1, heads, 0, size}.

    With the initialiser that a batch-sized Broadcast gives, a model without Gather returns empty tensors.
    Serves batch 1 only. `beam_idx` is dropped where nothing needs it any more. Returns the number of
    Gathers removed.
    """
    removed = 0
    _repair_head_repeat(model)
    for read_value in _kv_reads(model):
        for gather in list(_gathers(read_value)):
            _move_consumers(gather.output(0), read_value.output(0))
            removed += 1
        sizes = [1, *(max(size, 0) for size in _sizes(read_value)[1:])]
        _initialise(read_value, ops.constant(np.zeros(sizes, _dtype(read_value))))
    _drop_unused_beam_index(model)
    model.validate_nodes_and_infer_types()
    return removed


def _kv_reads(model: ov.Model) -> Iterator[ov.Node]:
    """The ReadValue of each KV state: batch first, exactly one more dynamic axis."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ReadValue":
            sizes = _sizes(node)
            if sizes[:1] == [-1] and sizes[1:].count(-1) == 1:
                yield node


def _sizes(read_value: ov.Node) -> list[int]:
    """Declared sizes of the state, -1 = dynamic; empty when the rank is unknown."""
    return [int(size) for size in read_value.get_attributes()["variable_shape"]]


def _dtype(read_value: ov.Node) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = read_value.get_output_element_type(0).to_dtype()
    return dtype


def _gathers(read_value: ov.Node) -> Iterator[ov.Node]:
    """Gathers that read the state, directly or behind a Convert."""
    for consumer in read_value.output(0).get_target_inputs():
        node = consumer.get_node()
        if node.get_type_name() == "Gather":
            yield node
        elif node.get_type_name() == "Convert":
            yield from _gathers(node)


def _has_gather(read_value: ov.Node) -> bool:
    return next(_gathers(read_value), None) is not None


def _insert_gather(read_value: ov.Node, beam_index: ov.Node) -> None:
    """Reorder the state by `beam_index` for all that use its values. ShapeOf goes on looking at the state."""
    users = [
        consumer
        for consumer in read_value.output(0).get_target_inputs()
        if consumer.get_node().get_type_name() != "ShapeOf"
    ]
    gather = ops.gather(read_value, beam_index, np.int64(0))
    for consumer in users:
        consumer.replace_source_output(gather.output(0))


def _growing_shape(read_value: ov.Node, batch: ov.Output) -> ov.Node:
    """Zeros of shape [batch, …, 0, …], the empty state."""
    count = ops.gather(ops.shape_of(batch, output_type="i64"), np.array([0], np.int64), np.int64(0))
    rest = np.array([max(size, 0) for size in _sizes(read_value)[1:]], np.int64)
    zero = ops.constant(np.zeros((), _dtype(read_value)))
    return ops.broadcast(zero, ops.concat([count, ops.constant(rest)], 0))


def _initialise(read_value: ov.Node, initialiser: ov.Node) -> None:
    read_value.set_arguments([initialiser.output(0)])


def _batch_of(model: ov.Model) -> ov.Output:
    """The input whose first axis is the batch."""
    for parameter in model.get_parameters():
        if parameter.output(0).get_names() & set(TOKEN_INPUTS):
            return parameter.output(0)
    raise CutRefused("the model has no input named input_ids or inputs_embeds")


def _beam_index(model: ov.Model) -> ov.Node:
    """The i32 Parameter `beam_idx`; made where it is missing, an i64 one becomes i32 (else nothing fuses)."""
    for parameter in model.get_parameters():
        if BEAM_INDEX in parameter.output(0).get_names():
            parameter.set_element_type(ov.Type.i32)
            return parameter
    parameter = ops.parameter([-1], np.int32, name=BEAM_INDEX)
    parameter.output(0).set_names({BEAM_INDEX})
    model.add_parameters([parameter])
    return parameter


def _drop_unused_beam_index(model: ov.Model) -> None:
    sources = {
        node.input_value(port).get_node().get_name()
        for node in model.get_ordered_ops()
        for port in range(node.get_input_size())
    }
    for parameter in model.get_parameters():
        if BEAM_INDEX in parameter.output(0).get_names() and parameter.get_name() not in sources:
            model.remove_parameter(parameter)


def _repair_head_repeat(model: ov.Model) -> None:
    """Let the repetition of KV heads broadcast to the cache's length.

    openvino_genai's GGUF reader writes the length as a literal 0 in the target of the bidirectional
    Broadcast. The fused attention never computes that shape; the unfused one does, and fails. 1 means "as
    it is" there.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Broadcast" or node.get_attributes()["mode"] != "bidirectional":
            continue
        target = node.input_value(1).get_node()
        if target.get_type_name() != "Concat":
            continue
        for port in range(target.get_input_size()):
            part = target.input_value(port).get_node()
            if part.get_type_name() == "Constant" and not part.data.any():
                target.input(port).replace_source_output(ops.constant(np.ones_like(part.data)).output(0))


def _move_consumers(old: ov.Output, new: ov.Output) -> None:
    for consumer in list(old.get_target_inputs()):
        consumer.replace_source_output(new)
