"""Rewrite the linear layers of a stage so that they take less time and compute the same.

A small model spends its time between the products as much as in them. Matrices of one form that read the same
rows (q, k and v; gate and up) become one matrix, whose product is split. A product's columns do not depend on
each other, so every bit stays the same. What `repair` adds to such products is added before the split.

Measured with the default model, one core, `fast`, 14 pairs: 0.92 of the time of a token, 0.94 at 8 rows.

Tried and left: signed values without zero points, for which the residual minima of `repair` can make up, take
0.83 of the time. Their kernel also quantises the activations of long prompts, which the one with zero points
does not: `fast` then preferred another token than `exact` at 171 of 5,082 positions, the uncut model at 120.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops

LARGEST_MERGED = 4 << 20  # bytes of stored values; what lies between two products is nothing to larger ones

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A compressed weight [outputs, inputs] and the product that it is used in.

    Constants: `values` and `scale`, [outputs, groups, …]; `zero` likewise, None without zero points. They are
    converted to the type `number` for the arithmetic. `wide` says that the result is converted to f32.
    """

    product: Any
    values: Any
    scale: Any
    zero: Any
    number: ov.Type
    wide: bool

    @property
    def outputs(self) -> int:
        return int(self.values.get_output_shape(0)[0])

    @property
    def inputs(self) -> int:
        return int(np.prod(self.values.get_output_shape(0)[1:]))

    def form(self) -> Key:
        """Equal for matrices that may be put on top of each other."""
        parts = (self.values, self.scale, self.zero)
        return (self.number, self.wide, *(_form(part) for part in parts if part is not None))


@dataclass(frozen=True, slots=True)
class _Addends:
    """What is added to the products of a group, in their order: the parts of one tensor."""

    whole: ov.Output
    additions: tuple[Any, ...]  # the Add node of each matrix


def tune(model: ov.Model) -> int:
    """Rewrite `model` in place; returns how many matrices went into merged ones."""
    merged = 0
    for group in _groups(model):
        _merge(*_with_addends(group))
        merged += len(group)
    if merged:
        model.validate_nodes_and_infer_types()
    return merged


def _groups(model: ov.Model) -> list[list[_Matrix]]:
    """Two and more matrices of one form that read the same rows, and are not large together."""
    alike: dict[Key, list[_Matrix]] = {}
    for node in model.get_ordered_ops():
        matrix = _matrix_of(node)
        if matrix is not None:
            source = node.input_value(0)
            key = (source.get_node().get_name(), source.get_index(), matrix.form())
            alike.setdefault(key, []).append(matrix)
    return [group for group in alike.values() if len(group) > 1 and _is_small(group)]


def _is_small(group: list[_Matrix]) -> bool:
    size = sum(matrix.values.get_byte_size() for matrix in group)
    return size <= LARGEST_MERGED and all(map(_stackable, group))


def _matrix_of(node: Any) -> _Matrix | None:
    """The weight of a product: Constant -> Convert -> [Subtract] -> Multiply -> [Reshape] -> [Convert]."""
    if node.get_type_name() != "MatMul" or len(node.get_output_partial_shape(0)) != 3:
        return None
    attributes = node.get_attributes()
    if attributes["transpose_a"] or not attributes["transpose_b"]:
        return None
    wide, weight = _passed(node.input_value(1).get_node(), "Convert")
    reshaped, weight = _passed(weight, "Reshape")
    if weight.get_type_name() != "Multiply" or not _used_once(weight):
        return None
    shifted, scale = weight.input_value(0).get_node(), weight.input_value(1).get_node()
    zero = None
    if shifted.get_type_name() == "Subtract":
        converted, zero = (shifted.input_value(index).get_node() for index in (0, 1))
        zero = _passed(zero, "Convert")[1]
    else:
        converted = shifted
    is_stored, values = _passed(converted, "Convert")
    constants = [part for part in (values, scale, zero) if part is not None]
    if not is_stored or any(part.get_type_name() != "Constant" for part in constants):
        return None
    rows = values.get_output_shape(0)[0]
    if reshaped != (len(values.get_output_shape(0)) == 3):
        return None
    if any(tuple(part.get_output_shape(0))[:1] != (rows,) for part in constants):
        return None  # one zero point for all, say
    return _Matrix(node, values, scale, zero, weight.get_output_element_type(0), wide)


def _passed(node: Any, kind: str) -> tuple[bool, Any]:
    """Whether `node` is of this kind, and what it was made from; else itself."""
    return (True, node.input_value(0).get_node()) if node.get_type_name() == kind else (False, node)


def _same(node: Any, other: Any) -> bool:
    """Names are unique in a model; `==` of two nodes would be an operation of the graph."""
    return bool(node.get_name() == other.get_name())


def _used_once(node: Any) -> bool:
    return len(node.output(0).get_target_inputs()) == 1


def _form(constant: Any) -> Key:
    return (constant.get_output_element_type(0), tuple(constant.get_output_shape(0))[1:])


def _stackable(matrix: _Matrix) -> bool:
    """Constants of whole bytes: two values of 4 bits share one."""
    parts = (matrix.values, matrix.scale, matrix.zero)
    return all(
        int(np.prod(part.get_output_shape(0))) * part.get_output_element_type(0).bitwidth % 8 == 0
        for part in parts
        if part is not None
    )


def _with_addends(group: list[_Matrix]) -> tuple[list[_Matrix], _Addends | None]:
    """The matrices in the order in which one tensor is split and added to their products, if one is."""
    additions = [_only_addition(matrix) for matrix in group]
    found = [_addend(addition, matrix) for addition, matrix in zip(additions, group, strict=True)]
    parts = [part for part in found if part is not None]
    if len(parts) < len(group):
        return group, None
    split = parts[0].get_node()
    if any(not _same(part.get_node(), split) for part in parts) or not _is_split_of(split, group):
        return group, None
    order = sorted(range(len(group)), key=lambda index: int(parts[index].get_index()))
    ordered = [group[index] for index in order]
    widths = [int(output.get_partial_shape()[2].get_length()) for output in split.outputs()]
    if widths != [matrix.outputs for matrix in ordered]:
        return group, None
    return ordered, _Addends(split.input_value(0), tuple(additions[index] for index in order))


def _is_split_of(node: Any, group: list[_Matrix]) -> bool:
    """Whether a tensor [batch, rows, columns] is split by columns into as many parts."""
    if node.get_type_name() != "VariadicSplit" or len(node.outputs()) != len(group):
        return False
    axis = node.input_value(1).get_node()
    static = all(output.get_partial_shape()[2].is_static for output in node.outputs())
    return bool(static and axis.get_type_name() == "Constant" and int(axis.data.item()) in (2, -1))


def _only_addition(matrix: _Matrix) -> Any:
    """The Add behind a product that nothing else reads."""
    readers = list(matrix.product.output(0).get_target_inputs())
    node = readers[0].get_node() if len(readers) == 1 else None
    return node if node is not None and node.get_type_name() == "Add" else None


def _addend(addition: Any, matrix: _Matrix) -> ov.Output | None:
    """What is added to the product."""
    if addition is None:
        return None
    both = [addition.input_value(index) for index in (0, 1)]
    others = [one for one in both if not _same(one.get_node(), matrix.product)]
    return others[0] if len(others) == 1 else None


def _merge(group: Sequence[_Matrix], addends: _Addends | None) -> None:
    """One product in the place of the products of `group`."""
    result = ops.matmul(group[0].product.input_value(0), _weight(group), False, True)
    result.set_friendly_name("+".join(matrix.product.get_friendly_name() for matrix in group))
    ends = [matrix.product for matrix in group]
    if addends is not None:
        result = ops.add(result, addends.whole)
        ends = list(addends.additions)
    readers = [list(end.output(0).get_target_inputs()) for end in ends]
    axis = ops.constant(np.array(2, dtype=np.int64))
    widths = ops.constant(np.array([matrix.outputs for matrix in group], dtype=np.int64))
    for output, inputs in zip(ops.variadic_split(result, axis, widths).outputs(), readers, strict=True):
        for reader in inputs:
            reader.replace_source_output(output)


def _weight(group: Sequence[_Matrix]) -> Any:
    """The matrices on top of each other, in the form that they had."""
    first = group[0]
    number = first.number.get_type_name()
    weight = ops.convert(_stacked([matrix.values for matrix in group]), number)
    if first.zero is not None:
        zero = _stacked([matrix.zero for matrix in group])
        if zero.get_output_element_type(0) != first.number:
            zero = ops.convert(zero, number)
        weight = ops.subtract(weight, zero)
    weight = ops.multiply(weight, _stacked([matrix.scale for matrix in group]))
    if len(first.values.get_output_shape(0)) == 3:
        shape = np.array([sum(matrix.outputs for matrix in group), first.inputs], dtype=np.int64)
        weight = ops.reshape(weight, ops.constant(shape), special_zero=False)
    return ops.convert(weight, "f32") if first.wide else weight


def _stacked(constants: Sequence[Any]) -> Any:
    """Constants one below the other."""
    rows = sum(constant.get_output_shape(0)[0] for constant in constants)
    shape = ov.Shape([rows, *tuple(constants[0].get_output_shape(0))[1:]])
    tensor = ov.Tensor(constants[0].get_output_element_type(0), shape)
    tensor.data.reshape(-1).view(np.uint8)[:] = np.concatenate(list(map(_bytes, constants)))
    return ops.constant(tensor, shared_memory=False)


def _bytes(constant: Any) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)
