"""The weights of a converted model as numbers: which layers are linear, and what their constants say.

A compressed weight is Constant -> Convert -> Subtract(zero point) -> Multiply(scale) -> Reshape ->
Convert. It is evaluated here in f32, as the CPU's kernels do, not in the f16 that the graph names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from fleetchat.errors import SourceError

FloatArray = npt.NDArray[np.float32]

_ARITHMETIC = {"Subtract": np.subtract, "Multiply": np.multiply, "Add": np.add}
_PASSED_THROUGH = frozenset({"Convert", "Reshape"})


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant matrix [outputs, inputs] of the graph and the operations that use it."""

    output: Any  # ov.Output that yields the matrix
    multiplications: tuple[Any, ...]  # MatMul nodes; none for an embedding that is not tied

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.output.get_shape())


def matrices(model: ov.Model) -> list[Weight]:
    """Every constant matrix that a MatMul (transposed) or an embedding Gather reads, in graph order."""
    outputs: dict[tuple[str, int], Any] = {}
    users: dict[tuple[str, int], list[Any]] = {}
    for node in model.get_ordered_ops():
        source = _matrix_input(node)
        if source is None:
            continue
        key = (source.get_node().get_name(), source.get_index())
        outputs[key] = source
        users.setdefault(key, [])
        if node.get_type_name() == "MatMul":
            users[key].append(node)
    return [Weight(source, tuple(users[key])) for key, source in outputs.items()]


def evaluate(output: Any) -> FloatArray:
    """The value of a constant expression as f32.

    Raises SourceError for an operation or an element type that compressed weights do not have.
    """
    node = output.get_node()
    kind = node.get_type_name()
    if kind == "Constant":
        return _constant(node)
    if kind in _ARITHMETIC:
        left, right = (evaluate(node.input_value(index)) for index in (0, 1))
        result: FloatArray = _ARITHMETIC[kind](left, right, dtype=np.float32)
        return result
    if kind in _PASSED_THROUGH:
        return evaluate(node.input_value(0)).reshape(tuple(output.get_shape()))
    raise SourceError(f"the converted model has a weight made by {kind}, which cannot be checked")


def _matrix_input(node: Any) -> Any:
    kind = node.get_type_name()
    if kind == "MatMul":
        attributes = node.get_attributes()
        source = node.input_value(1) if attributes["transpose_b"] and not attributes["transpose_a"] else None
    elif kind == "Gather":
        source = node.input_value(0)
    else:
        return None
    if source is None or not _is_constant(source) or len(source.get_shape()) != 2:
        return None
    return source


def _is_constant(output: Any) -> bool:
    node = output.get_node()
    kind = node.get_type_name()
    if kind == "Constant":
        return True
    if kind in _ARITHMETIC:
        return all(_is_constant(node.input_value(index)) for index in (0, 1))
    return kind in _PASSED_THROUGH and _is_constant(node.input_value(0))


def _constant(node: Any) -> FloatArray:
    kind = node.get_element_type().to_string()
    shape = tuple(node.get_output_shape(0))
    if kind in ("u4", "i4"):
        return _nibbles(node.data, signed=kind == "i4").reshape(shape)
    if kind in ("f32", "f16", "u8", "i8"):
        return np.asarray(node.data).astype(np.float32).reshape(shape)
    raise SourceError(f"the converted model has a weight of type {kind}, which cannot be checked")


def _nibbles(packed: npt.NDArray[np.uint8], *, signed: bool) -> FloatArray:
    """Two values a byte, the lower half first."""
    packed = packed.reshape(-1).view(np.uint8)
    values = np.empty(packed.size * 2, dtype=np.float32)
    values[0::2] = packed & 15
    values[1::2] = packed >> 4
    if signed:
        values[values > 7] -= 16
    return values
