"""Cut one stage out of a model: small edits on a fresh read, checked at the end.

A fresh read for each stage, because a `Model` shares its nodes with the model that it was made from.
Nothing here uses shared-memory constants: a temporary array behind one silently corrupts weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import openvino as ov
from openvino import opset15 as ops

from fleetchat.cutter.boundary import Layers
from fleetchat.cutter.fusion import BEAM_INDEX
from fleetchat.cutter.head import LOGIT_ROWS, flat_logits, gather_rows
from fleetchat.cutter.plan import Redirect, StagePlan
from fleetchat.cutter.probe import Axis, activation_sizes
from fleetchat.cutter.view import TOKEN_INPUTS, GraphView, nodes_like
from fleetchat.errors import CutRefused

STAGE_INPUT = "inputs_embeds"  # the paged transform of OpenVINO accepts no other name for hidden rows
STAGE_OUTPUT = "hidden"
ENGINE_INPUTS = frozenset(
    {*TOKEN_INPUTS, "attention_mask", "position_ids", BEAM_INDEX, LOGIT_ROWS}
)  # what a stage engine feeds

Sizes = dict[int, tuple[int | Axis, ...]]


def build_stage(read: Callable[[], ov.Model], view: GraphView, layers: Layers, plan: StagePlan) -> ov.Model:
    """Make the stage's model. `read` gives a fresh model of the viewed file.

    Inputs and outputs are those of the stage contract: `input_ids` i64 [B, S] or `inputs_embeds` f32 [B, S,
    hidden]; output `hidden` f32 [B, S, hidden], or `logits` f32 [n, vocabulary] with the further input
    `logit_rows`. Raises CutRefused when the result is not a proper stage.
    """
    sizes = activation_sizes(read, view, [r.source for r in plan.redirects if r.target is None])
    model = read()
    nodes = nodes_like(view, model)
    reached = {nodes[index].get_name() for index in plan.reached if view[index].kind == "Parameter"}
    parameters = [parameter for parameter in model.get_parameters() if parameter.get_name() in reached]
    entry = nodes[view.token_input]
    if plan.start is not None:
        entry = _replace_boundary(nodes[plan.start].output(0), layers.hidden)
        parameters.insert(0, entry)
    for redirect in plan.redirects:
        _redirect(view, nodes, redirect, entry.output(0), sizes)
    if plan.is_last:
        parameters.append(gather_rows(nodes[layers.head].output(0), layers.hidden))
        result = flat_logits(nodes[layers.result].input_value(0), layers.vocabulary)
    else:
        result = _hidden_result(nodes[plan.end].output(0))
    sinks = [nodes[view.assigns[variable]] for variable in plan.variables]
    stage = ov.Model([result], sinks, parameters, f"layers {plan.first} to {plan.last}")
    for key, value in model.get_rt_info().items():
        stage.set_rt_info(value, key)
    stage.validate_nodes_and_infer_types()
    _check(stage, layers, plan)
    return stage


def _replace_boundary(boundary: ov.Output, hidden: int) -> ov.Node:
    """Put a Parameter in the place of the boundary for all its consumers, ShapeOf included."""
    parameter = ops.parameter([-1, -1, hidden], np.float32, name=STAGE_INPUT)
    parameter.output(0).set_names({STAGE_INPUT})
    for consumer in list(boundary.get_target_inputs()):
        consumer.replace_source_output(parameter.output(0))
    return parameter


def _hidden_result(boundary: ov.Output) -> ov.Node:
    boundary.set_names({STAGE_OUTPUT})
    result = ops.result(boundary)
    result.set_friendly_name(STAGE_OUTPUT)
    return result


def _redirect(
    view: GraphView, nodes: Sequence[ov.Node], redirect: Redirect, entry: ov.Output, sizes: Sizes
) -> None:
    """Give the consumers of a foreign ShapeOf the same numbers from a tensor of this stage."""
    shape_of = nodes[redirect.shape_of]
    if redirect.target is None:
        _use_vector(shape_of, _activation_shape(sizes[redirect.source], entry, shape_of))
        return
    target = nodes[redirect.target].output(0)
    shape = view[redirect.source].shape
    if shape == view[redirect.target].shape:
        shape_of.input(0).replace_source_output(target)
    else:
        axes: list[int | ov.Node] = [
            size if size >= 0 else _size(target, axis, shape_of) for axis, size in enumerate(shape or ())
        ]
        _use_vector(shape_of, _vector(axes, shape_of))


def _activation_shape(sizes: Sequence[int | Axis], entry: ov.Output, shape_of: ov.Node) -> ov.Node:
    """The shape of an activation, computed from the stage's input, whose first axes are batch and rows."""
    batch, rows = _size(entry, 0, shape_of), _size(entry, 1, shape_of)
    made = {Axis.BATCH: batch, Axis.ROWS: rows, Axis.BATCH_TIMES_ROWS: ops.multiply(batch, rows)}
    return _vector([made[size] if isinstance(size, Axis) else size for size in sizes], shape_of)


def _size(tensor: ov.Output, axis: int, shape_of: ov.Node) -> ov.Node:
    """One size of a tensor as a vector of length 1, in the integer type of `shape_of`."""
    shape = ops.shape_of(tensor, output_type=shape_of.get_output_element_type(0).get_type_name())
    return ops.gather(shape, np.array([axis], np.int64), np.int64(0))


def _vector(sizes: Sequence[int | ov.Node], shape_of: ov.Node) -> ov.Node:
    integer = shape_of.get_output_element_type(0).to_dtype()
    parts = [ops.constant(np.array([size], integer)) if isinstance(size, int) else size for size in sizes]
    return ops.concat(parts, 0)


def _use_vector(shape_of: ov.Node, vector: ov.Node) -> None:
    for consumer in list(shape_of.output(0).get_target_inputs()):
        consumer.replace_source_output(vector.output(0))


def _check(stage: ov.Model, layers: Layers, plan: StagePlan) -> None:
    """Refuse a stage that needs tokens it does not get, or states that are not its own."""
    where = f"stage of layers {plan.first} to {plan.last}"
    ordered = stage.get_ordered_ops()
    inputs = {
        name for node in ordered if node.get_type_name() == "Parameter" for name in node.output(0).get_names()
    }
    listed = {name for parameter in stage.get_parameters() for name in parameter.output(0).get_names()}
    if inputs != listed:
        raise CutRefused(f"{where}: it needs the inputs {sorted(inputs)} but lists {sorted(listed)}")
    if inputs - ENGINE_INPUTS:
        raise CutRefused(f"{where}: nothing feeds its inputs {sorted(inputs - ENGINE_INPUTS)}")
    if plan.start is not None and inputs & set(TOKEN_INPUTS) != {STAGE_INPUT}:
        raise CutRefused(f"{where}: it still needs the tokens")
    for kind in ("ReadValue", "Assign"):
        found = sorted(node.get_variable_id() for node in ordered if node.get_type_name() == kind)
        if found != sorted(plan.variables):
            raise CutRefused(f"{where}: its {kind} nodes are not those of its own states")
    output = stage.output(0)
    expected = [-1, layers.vocabulary] if plan.is_last else [-1, -1, layers.hidden]
    if output.get_element_type() != ov.Type.f32 or output.get_partial_shape() != ov.PartialShape(expected):
        raise CutRefused(f"{where}: its output is {output.get_partial_shape()}, not f32 {expected}")
