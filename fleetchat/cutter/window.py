"""Does the model's attention look back over a sliding window, and how far.

A rollback by mask is wrong past a window, because the window counts physical cells. The graph does not name
its window, so it is found in two steps: numbers that the attention masks are computed with are candidates,
and a mask computed at a length beyond the candidate shows whether it really is one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset15 as ops

from fleetchat.cutter.boundary import value_reach
from fleetchat.cutter.view import GraphView, nodes_like

_MASK_INPUT = 3  # of a ScaledDotProductAttention: query, key, value, mask
_SMALLEST_WINDOW = 8  # smaller numbers are axes and the like
_LARGEST_WINDOW = 32_768  # a probe beyond it would take seconds
_MARGIN = 8  # cells beyond the candidate
_STATE = "state"  # prefix of the input names


def find_window(core: ov.Core, read: Callable[[], ov.Model], view: GraphView) -> int:
    """The smallest sliding window in tokens; 0 when no attention mask shows one.

    Models that window without a mask are not looked into.
    """
    masks = mask_nodes(view)
    windows = [
        window
        for mask in masks
        if (candidates := window_candidates(view, mask))
        for window in _windows_of(core, read, view, mask, candidates)
    ]
    return min(windows, default=0)


def mask_nodes(view: GraphView) -> tuple[int, ...]:
    """The distinct masks of the attentions: an input of the operation, or what is added before a Softmax."""
    attentions = (view[index] for index in view.of_kind("ScaledDotProductAttention"))
    masks = [node.sources[_MASK_INPUT] for node in attentions if len(node.sources) > _MASK_INPUT]
    for index in view.of_kind("Softmax"):
        scores = view[view[index].sources[0]]
        if scores.kind == "Add":
            masks += [source for source in scores.sources if _is_mask(view, source)]
    return tuple(dict.fromkeys(masks))


def _is_mask(view: GraphView, index: int) -> bool:
    """A mask has one column a cell, and depends on neither tokens nor states."""
    shape = view[index].shape
    reached = value_reach(view, [index], lambda index: False)
    tokens = any(view[one].kind == "ReadValue" or one == view.token_input for one in reached)
    return shape is not None and len(shape) == 4 and shape[-1] < 0 and not tokens


def window_candidates(view: GraphView, mask: int) -> tuple[int, ...]:
    """Whole numbers that the mask's value depends on and that could be a window."""
    reached = value_reach(view, [mask], lambda index: False)
    numbers = {abs(scalar) for index in reached if (scalar := view[index].scalar) is not None}
    return tuple(
        sorted(int(n) for n in numbers if n.is_integer() and _SMALLEST_WINDOW <= n <= _LARGEST_WINDOW)
    )


def _windows_of(
    core: ov.Core, read: Callable[[], ov.Model], view: GraphView, mask: int, candidates: tuple[int, ...]
) -> list[int]:
    """Cells that one row sees, for each candidate, where they are fewer than there are."""
    model = read()
    compiled = core.compile_model(_mask_model(model, view, mask), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    windows = []
    for candidate in candidates:
        cells = candidate + _MARGIN
        seen = _cells_seen(compiled, cells)
        if 0 < seen < cells:
            windows.append(seen)
    return windows


def _mask_model(model: ov.Model, view: GraphView, mask: int) -> ov.Model:
    """Only the mask. The states whose length it asks for become inputs, named after what they stand for."""
    nodes = nodes_like(view, model)
    reached, waiting = {mask}, [mask]
    parameters: list[ov.Node] = []
    while waiting:
        index = waiting.pop()
        if view[index].kind == "ReadValue":
            parameters.append(_as_input(nodes[index], f"{_STATE} {len(parameters)}"))
            continue
        fresh = [source for source in view[index].sources if source not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    parameters += [nodes[index] for index in sorted(reached) if view[index].kind == "Parameter"]
    return ov.Model([ops.result(nodes[mask].output(0))], parameters, "mask")


def _as_input(read_value: ov.Node, name: str) -> ov.Node:
    """Put a Parameter of the state's declared shape in the place of a ReadValue."""
    sizes = read_value.get_attributes()["variable_shape"]
    parameter = ops.parameter(list(sizes), read_value.get_output_element_type(0).to_dtype())
    parameter.output(0).set_names({name})
    for consumer in list(read_value.output(0).get_target_inputs()):
        consumer.replace_source_output(parameter.output(0))
    return parameter


def _cells_seen(compiled: ov.CompiledModel, cells: int) -> int:
    """How many of `cells` the mask lets the newest row see, behind a state of `cells - 1`."""
    inputs = [_probe_input(port, cells) for port in compiled.inputs]
    mask = compiled.create_infer_request().infer(inputs)[0]
    row = mask.reshape(-1, cells)[-1]
    return int(np.count_nonzero(row if row.dtype == np.bool_ else row == row.max()))


def _probe_input(port: ov.ConstOutput, cells: int) -> NDArray[np.generic]:
    """What the model gets for one token at the end of `cells` cells."""
    names = port.get_names()
    if "attention_mask" in names:
        return np.ones((1, cells), np.int64)
    if "position_ids" in names:
        return np.full((1, 1), cells - 1, np.int64)
    rest = cells - 1 if any(name.startswith(_STATE) for name in names) else 1
    sizes = enumerate(port.get_partial_shape())
    shape = [size.get_length() if size.is_static else (1, rest)[min(axis, 1)] for axis, size in sizes]
    return np.zeros(shape, port.get_element_type().to_dtype())
