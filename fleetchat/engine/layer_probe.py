"""How long this machine takes for one layer: what `fleetchat fleet plan` measures a peer by, and what large
shards choose their settings by.

The layer is made up: its matrices have 8-bit weights and a scale for each row, as a real one has, and random
values. Attention is left out: its time depends on the length of the conversation, not on the model's cut.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from fleetchat.engine.fast_settings import CHUNK_ROWS, DECODE_ROWS, VERIFY_ROWS, FastSettings, Timing
from fleetchat.engine.precision import Precision, openvino_config

SHORTEST = 0.2  # seconds for which one figure is measured at least
FEWEST = 3
GROUP = 64  # inputs that share a scale, with 4 bits


def time_layer(
    hidden: int, intermediate: int, rows: int, *, device: str, threads: int
) -> tuple[float, float]:
    """Seconds for one row and for `rows` rows, medians. Raises whatever OpenVINO raises."""
    model = _layer(hidden, intermediate)
    config: Any = openvino_config(Precision.FAST, threads) if device == "CPU" else {}
    request = ov.Core().compile_model(model, device, config).create_infer_request()
    return tuple(_median(request.infer, hidden, count) for count in (1, rows))  # type: ignore[return-value]


def time_settings(hidden: int, settings: FastSettings, *, four_bits: bool, threads: int) -> Timing:
    """Times of two made-up matrices with these settings. Raises whatever OpenVINO raises.

    A shard of gigabytes takes half a minute to load for each candidate; its time is that of such matrices.
    """
    noise, linear = np.random.default_rng(0), _packed if four_bits else _linear
    x = ops.parameter([-1, hidden], np.float32)
    model = ov.Model(
        [linear(linear(x, hidden, 4 * hidden, noise), 4 * hidden, hidden, noise)], [x], "matrices"
    )
    config: Any = openvino_config(Precision.FAST, threads, fast=settings)
    request = ov.Core().compile_model(model, "CPU", config).create_infer_request()
    chunk, verify, decode = (
        _median(request.infer, hidden, rows) for rows in (CHUNK_ROWS, VERIFY_ROWS, DECODE_ROWS)
    )
    return Timing(decode, verify, chunk)


def _median(infer: Callable[[list[Any]], Any], hidden: int, rows: int) -> float:
    x = np.linspace(-1, 1, rows * hidden, dtype=np.float32).reshape(rows, hidden)
    infer([x])  # the first one prepares
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < SHORTEST:
        started = time.perf_counter()
        infer([x])
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _layer(hidden: int, intermediate: int) -> ov.Model:
    noise = np.random.default_rng(0)
    x = ops.parameter([-1, hidden], np.float32)
    state = x
    for _ in range(4):  # queries, keys, values and output, taken for square ones
        state = _linear(state, hidden, hidden, noise)
    gate, up = (_linear(state, hidden, intermediate, noise) for _ in range(2))
    out = _linear(ops.multiply(ops.swish(gate), up), intermediate, hidden, noise)
    return ov.Model([out], [x], "layer")


def _packed(x: ov.Node, width: int, outputs: int, noise: np.random.Generator) -> ov.Node:
    """As `_linear` with 4-bit weights and zero points in groups of 64, as exports have them."""
    shape = [outputs, width // GROUP, GROUP]
    values = noise.integers(0, 256, outputs * width // 2, dtype=np.uint8)
    zero_points = np.full(outputs * width // GROUP // 2, 0x88, np.uint8)
    weights, middle = (
        ops.constant(ov.Tensor(packed, ov.Shape([*shape[:2], last]), ov.Type.u4), shared_memory=False)
        for packed, last in ((values, GROUP), (zero_points, 1))
    )
    shifted = ops.subtract(ops.convert(weights, np.float16), ops.convert(middle, np.float16))
    scale = ops.constant(np.full((*shape[:2], 1), 1 / (8 * width), np.float16))
    matrix = ops.reshape(ops.multiply(shifted, scale), np.array([outputs, width], np.int64), False)
    return ops.matmul(x, ops.convert(matrix, np.float32), False, True)


def _linear(x: ov.Node, width: int, outputs: int, noise: np.random.Generator) -> ov.Node:
    values = noise.integers(-128, 128, (outputs, width), dtype=np.int8)
    weights = ops.convert(ops.constant(values), np.float32)
    scale = ops.constant(np.full((outputs, 1), 1 / (128 * width), np.float32))
    return ops.matmul(x, ops.multiply(weights, scale), False, True)
