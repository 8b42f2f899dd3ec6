"""Rewrite the linear layers of a stage so that they take less time and compute the same.

A small model spends its time between the products as much as in them, and reads every weight once a token.

*Merged*: matrices of one form that read the same rows (q, k and v; gate and up) become one matrix, whose
product is split. A product's columns do not depend on each other, so every bit stays the same.

*Centred*: a matrix that `repair` has completed is x @ (d*(q - z)).T + groupsum(x) @ r.T, with stored values q
of 0 to 15 and a zero point z for each group. It becomes x @ (d*(q - 8)).T + groupsum(x) @ (r + d*(8 - z)).T:
signed values need no zero points, and their kernel is faster. r is then kept in f32, where the sum is exact
to the last bits.

Measured with the default model, one core, `fast`, 14 pairs: merged takes 0.92 of the time of a token, both
take 0.83; 0.88 at 4 rows, 0.90 at 8.
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
SIGN = 0x88  # flipped in both halves of a byte: q of 0 to 15 becomes q - 8 in two's complement

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How many matrices went into merged ones, and how many were centred."""

    merged: int = 0
    centred: int = 0

    def __bool__(self) -> bool:
        return self.merged + self.centred > 0


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
class _Residual:
    """What `repair` adds to the products of some matrices, in their order: `sums` @ `minima`.T."""

    sums: ov.Output
    minima: npt.NDArray[np.float32]  # [outputs, groups]
    additions: tuple[Any, ...]  # the Add node of each matrix


def tune(model: ov.Model) -> Tuning:
    """Rewrite `model` in place."""
    merged = centred = 0
    for group in _groups(model):
        group, residual = _with_residual(group)
        if residual is not None:
            centred += len(group)
        elif len(group) < 2:
            continue
        merged += len(group) if len(group) > 1 else 0
        _rewrite(group, residual)
    model.validate_nodes_and_infer_types()
    return Tuning(merged, centred)


def _groups(model: ov.Model) -> list[list[_Matrix]]:
    """Matrices of one form that read the same rows; each alone where together they would be large."""
    alike: dict[Key, list[_Matrix]] = {}
    for node in model.get_ordered_ops():
        matrix = _matrix_of(node)
        if matrix is not None:
            source = node.input_value(0)
            key = (source.get_node().get_name(), source.get_index(), matrix.form())
            alike.setdefault(key, []).append(matrix)
    groups: list[list[_Matrix]] = []
    for group in alike.values():
        small = sum(matrix.values.get_byte_size() for matrix in group) <= LARGEST_MERGED
        groups += [group] if small and all(map(_stackable, group)) else [[matrix] for matrix in group]
    return groups


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


def _with_residual(group: list[_Matrix]) -> tuple[list[_Matrix], _Residual | None]:
    """The matrices in the order of the residual minima that `repair` has added, if it has."""
    additions = [_only_addition(matrix) for matrix in group]
    found = [_addend(addition, matrix) for addition, matrix in zip(additions, group, strict=True)]
    addends = [addend for addend in found if addend is not None]
    first = addends[0].get_node() if addends else None
    if first is None or len(addends) < len(group) or any(not _same(one.get_node(), first) for one in addends):
        return group, None
    is_split, product = _passed(first, "VariadicSplit")
    order = sorted(range(len(group)), key=lambda index: int(addends[index].get_index()))
    ordered = [group[index] for index in order]
    if len(first.outputs()) != len(group) or is_split != (len(group) > 1):
        return group, None
    minima = _minima(product, ordered)
    if minima is None:
        return group, None
    return ordered, _Residual(product.input_value(0), minima, tuple(additions[index] for index in order))


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


def _minima(product: Any, group: Sequence[_Matrix]) -> npt.NDArray[np.float32] | None:
    """The residual minima [outputs, groups] of these matrices, if `product` is theirs."""
    if product.get_type_name() != "MatMul" or any(not _is_shifted_u4(matrix) for matrix in group):
        return None
    sums, minima = product.input_value(0).get_node(), _passed(product.input_value(1).get_node(), "Convert")[1]
    is_sum, grouped = _passed(sums, "ReduceSum")
    is_grouped, rows = _passed(grouped, "Reshape")
    if not (is_sum and is_grouped and minima.get_type_name() == "Constant"):
        return None
    groups = group[0].values.get_output_shape(0)[1]
    if not _same(rows, group[0].product.input_value(0).get_node()):
        return None
    if tuple(minima.get_output_shape(0)) != (sum(matrix.outputs for matrix in group), groups):
        return None
    return np.asarray(minima.data, dtype=np.float32)


def _is_shifted_u4(matrix: _Matrix) -> bool:
    return (
        matrix.zero is not None
        and matrix.values.get_output_element_type(0) == ov.Type.u4
        and matrix.zero.get_output_element_type(0) == ov.Type.u4
        and len(matrix.values.get_output_shape(0)) == 3
    )


def _rewrite(group: Sequence[_Matrix], residual: _Residual | None) -> None:
    """One product in the place of the products of `group`."""
    source = group[0].product.input_value(0)
    weight = _weight(group, centred=residual is not None)
    result = ops.matmul(source, weight, False, True)
    result.set_friendly_name("+".join(matrix.product.get_friendly_name() for matrix in group))
    ends = [matrix.product for matrix in group]
    if residual is not None:
        minima = ops.constant(residual.minima + _shift(group), shared_memory=False)
        result = ops.add(result, ops.matmul(residual.sums, minima, False, True))
        ends = list(residual.additions)
    readers = [list(end.output(0).get_target_inputs()) for end in ends]
    for output, inputs in zip(_split(result, [matrix.outputs for matrix in group]), readers, strict=True):
        for reader in inputs:
            reader.replace_source_output(output)


def _weight(group: Sequence[_Matrix], *, centred: bool) -> Any:
    """The matrices on top of each other, in the form that they had, or with signed values."""
    first = group[0]
    values = _stacked([matrix.values for matrix in group], ov.Type.i4 if centred else None)
    weight = ops.convert(values, first.number.get_type_name())
    if first.zero is not None and not centred:
        zero = _stacked([matrix.zero for matrix in group])
        if zero.get_output_element_type(0) != first.number:
            zero = ops.convert(zero, first.number.get_type_name())
        weight = ops.subtract(weight, zero)
    weight = ops.multiply(weight, _stacked([matrix.scale for matrix in group]))
    if len(first.values.get_output_shape(0)) == 3:
        shape = np.array([sum(matrix.outputs for matrix in group), first.inputs], dtype=np.int64)
        weight = ops.reshape(weight, ops.constant(shape), special_zero=False)
    return ops.convert(weight, "f32") if first.wide else weight


def _stacked(constants: Sequence[Any], signed: ov.Type | None = None) -> Any:
    """Constants one below the other. `signed`: values of 4 bits become signed ones of this type."""
    packed = np.concatenate([_bytes(constant) for constant in constants])
    if signed is not None:
        packed = packed ^ np.uint8(SIGN)
    rows = sum(constant.get_output_shape(0)[0] for constant in constants)
    shape = ov.Shape([rows, *tuple(constants[0].get_output_shape(0))[1:]])
    tensor = ov.Tensor(signed or constants[0].get_output_element_type(0), shape)
    tensor.data.reshape(-1).view(np.uint8)[:] = packed
    return ops.constant(tensor, shared_memory=False)


def _bytes(constant: Any) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)


def _shift(group: Sequence[_Matrix]) -> npt.NDArray[np.float32]:
    """d*(8 - z) of each group, [outputs, groups]."""
    shifts = []
    for matrix in group:
        packed, scale = _bytes(matrix.zero), np.asarray(matrix.scale.data, dtype=np.float32)
        zeros = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[: scale.size]
        shifts.append((scale.reshape(-1) * (8 - zeros.astype(np.float32))).reshape(len(scale), -1))
    return np.concatenate(shifts)


def _split(result: Any, widths: list[int]) -> list[ov.Output]:
    if len(widths) == 1:
        return [result.output(0)]
    axis, lengths = (ops.constant(np.array(numbers, dtype=np.int64)) for numbers in (2, widths))
    return list(ops.variadic_split(result, axis, lengths).outputs())
