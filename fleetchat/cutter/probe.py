"""How the shape of an activation follows from batch and rows: asked of OpenVINO's own shape inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

import openvino as ov
from openvino import opset15 as ops

from fleetchat.cutter.view import GraphView, nodes_like
from fleetchat.errors import CutRefused


class Axis(Enum):
    """Meaning of a dynamic size, by the value that it takes in the probe."""

    BATCH = 3
    ROWS = 7
    BATCH_TIMES_ROWS = 21


# The mask is longer than the rows: a size that counts past tokens (11 or 18) is told from one of rows.
_MASK_LENGTH = 18


def activation_sizes(
    read: Callable[[], ov.Model], view: GraphView, sources: Iterable[int]
) -> dict[int, tuple[int | Axis, ...]]:
    """Sizes of the outputs of nodes `sources`, each a number or what it depends on.

    `read` gives a fresh model of the viewed file. Raises CutRefused for a size that is neither batch, rows
    nor their product.
    """
    wanted = list(dict.fromkeys(sources))
    if not wanted:
        return {}
    model = read()
    nodes = nodes_like(view, model)
    results = [ops.result(nodes[index].output(0)) for index in wanted]
    probed = _sub_model(model, view, wanted, results)
    probed.reshape({parameter.output(0): _probe_shape(parameter) for parameter in probed.get_parameters()})
    return {
        index: tuple(map(_meaning, before, result.get_output_partial_shape(0)))
        for index, result, before in zip(
            wanted, results, [view[index].shape or () for index in wanted], strict=True
        )
    }


def _sub_model(model: ov.Model, view: GraphView, wanted: list[int], results: list[ov.Node]) -> ov.Model:
    """Only what leads to the results: shape inference of a whole model may fail at fixed sizes."""
    reached, waiting = set(wanted), list(wanted)
    while waiting:
        fresh = [source for source in view[waiting.pop()].sources if source not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    nodes = nodes_like(view, model)
    parameters = [nodes[index] for index in sorted(reached) if view[index].kind == "Parameter"]
    return ov.Model(results, parameters, "probe")


def _probe_shape(parameter: ov.Node) -> list[int]:
    """[batch, rows] for the tokens and positions, a longer row for the mask; sizes that are fixed stay."""
    names = parameter.output(0).get_names()
    second = _MASK_LENGTH if "attention_mask" in names else Axis.ROWS.value
    probes = [Axis.BATCH.value, second]
    sizes = enumerate(parameter.get_output_partial_shape(0))
    return [size.get_length() if size.is_static else probes[min(axis, 1)] for axis, size in sizes]


def _meaning(before: int, probed: ov.Dimension) -> int | Axis:
    if before >= 0:
        return before
    if probed.is_static:
        for axis in Axis:
            if axis.value == probed.get_length():
                return axis
    raise CutRefused(f"a size ({probed}) is not the batch, the rows or their product")
