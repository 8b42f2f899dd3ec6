"""Does the converted model say what the GGUF says, and if not, can it be made to?

openvino_genai turns blocks with a free minimum (Q4_1: w = d*q + m) into integers with an integer zero
point z, so m is rounded to a whole multiple of d: 9 to 10 % mean error in every linear layer. What is
missing, r = m + z*d, is one number for each group of 32 columns, so

    x @ W.T = x @ W'.T + groupsum(x) @ r.T

is exact. One product of group sums serves all layers that read the same input; it is 1/32 of the work.
(Fractional zero points are as exact and cost more: their kernel is slower.)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13

from fleetchat.cutter.gguf_file import GgufFile, GgufTensor
from fleetchat.cutter.weights import Expression, FloatArray, Weight, captured, evaluate, matrices
from fleetchat.errors import BuildError, SourceError

REPAIR_VERSION = 1  # raise it when the repaired model changes; kept whole models are then made again
LARGEST_ERROR = 0.01  # mean relative error that is left alone, and that must not remain
GROUP = 32  # columns; every GGUF block type with minima that the converter reads has groups of 32
LONGEST_VECTOR = 1 << 20  # elements of a norm or bias that is looked for
OTHER_SOURCES = "use a GGUF in Q4_0, Q4_1, Q8_0 or F16, or an exported OpenVINO folder"
SAME_MATRIX = 0.9  # cosine of two sample rows; the damaged ones have 0.99, strangers 0.0


@dataclass(frozen=True, slots=True)
class LayerError:
    """Mean relative error, sum|w' - w| / sum|w|, of one linear layer before and after its repair."""

    tensor: str  # name in the GGUF
    before: float
    after: float
    size: int  # weights


@dataclass(frozen=True, slots=True)
class WeightReport:
    """What was found in all layers. `repaired` counts the layers that were changed."""

    layers: tuple[LayerError, ...]
    repaired: int

    @property
    def error_before(self) -> float:
        """Mean over all weights."""
        return self._mean(lambda layer: layer.before)

    @property
    def error_after(self) -> float:
        """Mean over all weights, after the repair."""
        return self._mean(lambda layer: layer.after)

    def _mean(self, value: Callable[[LayerError], float]) -> float:
        return sum(value(layer) * layer.size for layer in self.layers) / sum(
            layer.size for layer in self.layers
        )


@dataclass(frozen=True, slots=True)
class _Examined:
    weight: Weight
    error: LayerError
    residual: npt.NDArray[np.float16] | None  # [outputs, groups]; None = good as it is


@dataclass(frozen=True, slots=True)
class _Correction:
    multiplication: Any  # MatMul node
    residual: npt.NDArray[np.float16]


def repair(model: ov.Model, gguf: GgufFile, on_progress: Callable[[int, int], None]) -> WeightReport:
    """Compare all weights of `model` with `gguf` and repair in place those off by more than 1 %.

    `on_progress` gets (matrices done, matrices in all). Raises SourceError when a tensor of either side
    has no counterpart on the other, BuildError when a layer's error is more than 1 % and not of the kind
    that can be repaired.
    """
    weights = matrices(model)
    catalogue = Catalogue(gguf)
    examined = []
    expressions = [captured(weight.output) for weight in weights]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for one in pool.map(partial(_examine, catalogue, gguf), weights, expressions):
            examined.append(one)
            on_progress(len(examined), len(weights))
    catalogue.check_all_found([one.error.tensor for one in examined])
    _check_vectors(model, gguf)
    damaged = [one for one in examined if one.residual is not None]
    for corrections in _by_input(damaged):
        _correct(corrections)
    model.validate_nodes_and_infer_types()
    return WeightReport(tuple(one.error for one in examined), len(damaged))


class Catalogue:
    """Tells by its values which tensor of the GGUF a matrix was made from.

    The converter's constants have no names. The first and the last row are compared: they stay in place
    when the rows of a head are reordered.
    """

    def __init__(self, gguf: GgufFile) -> None:
        self._file = gguf.path.name
        self._tensors = [tensor for tensor in gguf.tensors.values() if len(tensor.shape) == 2]
        self._prints = {tensor.name: _fingerprint_of_tensor(gguf, tensor) for tensor in self._tensors}

    def counterpart(self, converted: FloatArray) -> GgufTensor:
        """The tensor that `converted` [outputs, inputs] was made from. Raises SourceError for none."""
        own = _fingerprint(converted[0], converted[-1])
        alike = [
            (float(own @ self._prints[tensor.name]), tensor)
            for tensor in self._tensors
            if tensor.shape == converted.shape
        ]
        score, best = max(alike, key=lambda entry: entry[0], default=(0.0, None))
        if best is None or score < SAME_MATRIX:
            shape = "x".join(map(str, converted.shape))
            raise SourceError(
                f"{self._file}: the converter made a {shape} weight that is none of the file's",
                hint=OTHER_SOURCES,
            )
        return best

    def check_all_found(self, found: list[str]) -> None:
        """Raises SourceError unless every matrix of the file was found exactly once."""
        lost = sorted({tensor.name for tensor in self._tensors} - set(found))
        if lost or len(set(found)) != len(found):
            what = f"lost {lost[0]}" if lost else "used a weight twice"
            raise SourceError(
                f"{self._file}: the converter {what}, so its result cannot be trusted", hint=OTHER_SOURCES
            )


def unpermuted(rows: FloatArray, heads: int) -> FloatArray:
    """Rows of q or k in the order of the converter: each head's interleaved pairs become two halves."""
    outputs, inputs = rows.shape
    return np.ascontiguousarray(
        rows.reshape(heads, outputs // heads // 2, 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)
    )


def _fingerprint_of_tensor(gguf: GgufFile, tensor: GgufTensor) -> FloatArray:
    return _fingerprint(
        gguf.dequantised_row(tensor.name, 0), gguf.dequantised_row(tensor.name, tensor.shape[0] - 1)
    )


def _fingerprint(first: FloatArray, last: FloatArray) -> FloatArray:
    values = np.concatenate([first, last])
    length = np.float32(np.linalg.norm(values))
    if length:
        values /= length
    return values


def _check_vectors(model: ov.Model, gguf: GgufFile) -> None:
    """Norms and biases must be in the graph as they are in the file."""
    constants: dict[int, list[FloatArray]] = {}
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.get_element_type().to_string() in ("f32", "f16"):
            size = int(np.prod(node.get_output_shape(0)))
            if size <= LONGEST_VECTOR:
                constants.setdefault(size, []).append(np.asarray(node.data, dtype=np.float32).reshape(-1))
    for tensor in gguf.tensors.values():
        if len(tensor.shape) != 1 or not tensor.name.endswith(("norm.weight", ".bias")):
            continue
        values = gguf.dequantised(tensor.name)
        if not any(
            np.allclose(one, values, rtol=LARGEST_ERROR, atol=1e-4) for one in constants.get(values.size, [])
        ):
            raise SourceError(
                f"{gguf.path.name}: the converter changed {tensor.name}, so its result cannot be trusted",
                hint=OTHER_SOURCES,
            )


def _source_values(gguf: GgufFile, tensor: GgufTensor, converted: FloatArray) -> FloatArray:
    """The tensor's values in the row order of the converted matrix."""
    values = gguf.dequantised(tensor.name)
    part = tensor.name.removesuffix(".weight").rpartition(".")[2]
    key = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(part)
    if key is None:
        return values
    heads = gguf.integer(f"{gguf.architecture}.attention.{key}")
    if not heads:
        return values
    reordered = unpermuted(values, heads)
    return min(values, reordered, key=lambda one: float(np.abs(converted - one).sum()))


def _examine(catalogue: Catalogue, gguf: GgufFile, weight: Weight, expression: Expression) -> _Examined:
    """Compare one matrix; runs in a thread, so it takes nothing of OpenVINO from `weight` but its place."""
    converted = evaluate(expression)
    tensor = catalogue.counterpart(converted)
    source = _source_values(gguf, tensor, converted)
    scale = float(np.abs(source).sum(dtype=np.float64)) or 1.0
    missing = np.subtract(source, converted, out=converted)
    before = float(np.abs(missing).sum(dtype=np.float64)) / scale
    if before <= LARGEST_ERROR:
        return _Examined(weight, LayerError(tensor.name, before, before, source.size), None)
    if not weight.multiplications or missing.shape[1] % GROUP:
        raise _beyond_repair(tensor, gguf, before, before)
    groups = missing.reshape(len(missing), -1, GROUP)
    residual = groups.mean(axis=2).astype(np.float16)
    groups -= residual[:, :, np.newaxis]
    after = float(np.abs(groups).sum(dtype=np.float64)) / scale
    if not after < LARGEST_ERROR:
        raise _beyond_repair(tensor, gguf, before, after)
    return _Examined(weight, LayerError(tensor.name, before, after, source.size), residual)


def _beyond_repair(tensor: GgufTensor, gguf: GgufFile, before: float, after: float) -> BuildError:
    return BuildError(
        f"{gguf.path.name}: the converter damaged {tensor.name} ({tensor.kind.name}): "
        f"mean error {before:.1%}, {after:.1%} after repair, at most {LARGEST_ERROR:.0%} is accepted",
        hint=OTHER_SOURCES,
    )


def _by_input(damaged: list[_Examined]) -> list[list[_Correction]]:
    """The corrections to make, those of layers that read the same input together."""
    found: dict[tuple[str, int], list[_Correction]] = {}
    for one in damaged:
        assert one.residual is not None
        for multiplication in one.weight.multiplications:
            source = multiplication.input_value(0)
            key = (source.get_node().get_name(), source.get_index())
            found.setdefault(key, []).append(_Correction(multiplication, one.residual))
    return list(found.values())


def _correct(corrections: list[_Correction]) -> None:
    """Add groupsum(x) @ r.T behind each MatMul; one product serves all layers with the same input x."""
    source = corrections[0].multiplication.input_value(0)
    readers = [list(one.multiplication.output(0).get_target_inputs()) for one in corrections]
    residuals = np.concatenate([one.residual for one in corrections])
    constant = opset13.constant(residuals, shared_memory=False)
    product = opset13.matmul(
        _group_sums(source, residuals.shape[1]), opset13.convert(constant, "f32"), False, True
    )
    parts = _split(product, [len(one.residual) for one in corrections])
    for one, part, inputs in zip(corrections, parts, readers, strict=True):
        repaired = opset13.add(one.multiplication.output(0), part)
        repaired.set_friendly_name(f"{one.multiplication.get_friendly_name()}/repaired")
        for reader in inputs:
            reader.replace_source_output(repaired.output(0))


def _split(product: Any, widths: list[int]) -> list[Any]:
    if len(widths) == 1:
        return [product.output(0)]
    axis = opset13.constant(np.array(2, dtype=np.int64))
    lengths = opset13.constant(np.array(widths, dtype=np.int64))
    return list(opset13.variadic_split(product, axis, lengths).outputs())


def _group_sums(source: Any, groups: int) -> Any:
    """[batch, rows, columns] -> [batch, rows, groups]."""
    pattern = opset13.constant(np.array([0, 0, groups, GROUP], dtype=np.int64))
    grouped = opset13.reshape(source, pattern, special_zero=True)
    return opset13.reduce_sum(grouped, opset13.constant(np.array([3], dtype=np.int64)), keep_dims=False)
