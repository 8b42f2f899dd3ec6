"""The whole model without some of its layers, to compare stages with when the whole cannot be loaded."""

from __future__ import annotations

import openvino as ov
from openvino import opset15 as ops

from fleetchat.cutter.boundary import Layers
from fleetchat.cutter.view import GraphView, nodes_like
from fleetchat.errors import CutRefused


def skeleton_of(model: ov.Model, view: GraphView, layers: Layers, first: int, last: int) -> ov.Model:
    """Layer 0 and layers `first` … `last` of a freshly read whole model, one behind the other.

    Nothing is cut and no shape is redirected: masks and shapes come from layer 0, as in the whole model. Only
    the layers between are left out, by giving layer `first` what layer 0 puts out. Results: that output
    (absent when `first` is 0), then what the last layer, or the head behind it, puts out.
    """
    nodes = nodes_like(view, model)
    if first > 1:
        after_first = nodes[layers.boundaries[0]].output(0)
        for consumer in list(nodes[layers.boundaries[first - 1]].output(0).get_target_inputs()):
            consumer.replace_source_output(after_first)
    results = [ops.result(nodes[layers.boundaries[0]].output(0))] if first > 0 else []
    if last == layers.count - 1:
        results.append(nodes[layers.result])
    else:
        results.append(ops.result(nodes[layers.boundaries[last]].output(0)))
    kept = sorted({0, *range(first, last + 1)})
    variables = [name for layer in kept for name in layers.variables[layer]]
    sinks = [nodes[view.assigns[name]] for name in variables]
    skeleton = ov.Model(results, sinks, model.get_parameters(), "skeleton")
    skeleton.validate_nodes_and_infer_types()
    read = {
        node.get_variable_id() for node in skeleton.get_ordered_ops() if node.get_type_name() == "ReadValue"
    }
    if read != set(variables):
        raise CutRefused(f"layers {first} to {last} need states of other layers")
    return skeleton
