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


@dataclass(frozen=True, slots=True)
class Expression:
    """How a weight is made: a constant's stored values, or an operation on other expressions.

    It holds arrays only, so that it may be evaluated in any thread. OpenVINO's Python objects may not:
    the first two threads that look at a constant's values at once stop for ever (a lock of pybind11
    against the interpreter's own).
    """

    operation: str
    shape: tuple[int, ...]
    inputs: tuple[Expression, ...] = ()
    stored: npt.NDArray[Any] | None = None
    element: str = ""  # element type of the constant


def captured(output: Any) -> Expression:
    """The constant expression that yields `output`. Call it in the main thread only."""
    node = output.get_node()
    operation = node.get_type_name()
    shape = tuple(output.get_shape())
    if operation == "Constant":
        return Expression(operation, shape, (), node.data, node.get_element_type().to_string())
    values = (0, 1) if operation in _ARITHMETIC else (0,)
    return Expression(operation, shape, tuple(captured(node.input_value(index)) for index in values))


def evaluate(expression: Expression) -> FloatArray:
    """The value of a constant expression as f32.

    Raises SourceError for an element type that compressed weights do not have.
    """
    if expression.stored is not None:
        return _constant(expression.stored, expression.element).reshape(expression.shape)
    if expression.operation in _ARITHMETIC:
        left, right = (evaluate(one) for one in expression.inputs)
        result: FloatArray = _ARITHMETIC[expression.operation](left, right, dtype=np.float32)
        return result
    return evaluate(expression.inputs[0]).reshape(expression.shape)


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


def _constant(stored: npt.NDArray[Any], element: str) -> FloatArray:
    if element in ("u4", "i4"):
        return _nibbles(stored, signed=element == "i4")
    if element in ("f32", "f16", "u8", "i8"):
        return stored.astype(np.float32)
    raise SourceError(f"the converted model has a weight of type {element}, which cannot be checked")


def _nibbles(packed: npt.NDArray[np.uint8], *, signed: bool) -> FloatArray:
    """Two values a byte, the lower half first."""
    packed = packed.reshape(-1).view(np.uint8)
    values = np.empty(packed.size * 2, dtype=np.float32)
    values[0::2] = packed & 15
    values[1::2] = packed >> 4
    if signed:
        values[values > 7] -= 16
    return values
