"""Weights of made-up models: random values in the layout that optimum-intel and nncf give to real ones.

A matrix of a layer is INT4, asymmetric, in groups of 128: Constant u4 [outputs, groups, 128], zero points
u4 and scales f16 [outputs, groups, 1], then Convert, Subtract, Multiply, Reshape, Convert. The tables of
embedding and head are INT8, asymmetric, a scale and a zero point for each row.

Large constants are views of one scratch file of random bytes, each at another place, so that a model of any
size is written with little memory. OpenVINO stores equal constants once: those of the same shape and place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TypeVar

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as op

GROUP = 128  # inputs that share a scale and a zero point
BLOCK = (8 << 20) + 4099  # random bytes, repeated; odd, so that no row of a table equals another
STEP = 256  # bytes from one place to the next
PLACES = 1 << 13
SPREAD_OF_4_BITS = sqrt((16**2 - 1) / 12)  # standard deviation of 0 … 15
SPREAD_OF_8_BITS = sqrt((256**2 - 1) / 12)
_SMALL = 4 << 20  # values in the blocks that scales and zero points are taken from

Number = TypeVar("Number", np.uint8, np.float16)


@dataclass(frozen=True)
class RandomBytes:
    """`values` is the scratch file, `scales` f16 from 0.75 to 1.25, `zero_points` packed u4 of 7 and 8."""

    values: NDArray[np.uint8]
    scales: NDArray[np.float16]
    zero_points: NDArray[np.uint8]

    def take(self, size: int, place: int) -> NDArray[np.uint8]:
        """`size` bytes of the file."""
        begin = (place % PLACES) * STEP
        return self.values[begin : begin + size]


@contextmanager
def random_bytes(scratch: Path, largest: int) -> Iterator[RandomBytes]:
    """Random bytes enough for a constant of `largest` bytes at any place; the file is gone at the end."""
    random = np.random.default_rng(0)
    block = random.bytes(BLOCK)
    size = largest + PLACES * STEP
    try:
        with scratch.open("wb") as stream:
            for begin in range(0, size, BLOCK):
                stream.write(block[: size - begin])
        scales = random.uniform(0.75, 1.25, _SMALL).astype(np.float16)
        zero_points = random.choice(np.array([0x77, 0x78, 0x87, 0x88], np.uint8), _SMALL // 2)
        yield RandomBytes(np.memmap(scratch, np.uint8, "r+"), scales, zero_points)
    finally:
        scratch.unlink(missing_ok=True)


class Weights:
    """Makes constants, one place after the other. What it is made from must outlive the model."""

    def __init__(self, source: RandomBytes) -> None:
        self._source = source
        self._place = 0

    def matrix(self, outputs: int, inputs: int, gain: float, *, distinct: bool = True) -> ov.Node:
        """f32 [outputs, inputs] with values of a standard deviation of gain / sqrt(inputs).

        `distinct` False shares its bytes with all others of that shape.
        """
        place = self._next() if distinct else 0
        groups = inputs // GROUP
        packed = self._source.take(outputs * inputs // 2, place)
        values = _shared(packed, [outputs, groups, GROUP], ov.Type.u4)
        zeros = self._turned(self._source.zero_points, outputs * groups // 2, place)
        scales = self._turned(self._source.scales, outputs * groups, place)
        scales *= np.float16(gain / (SPREAD_OF_4_BITS * sqrt(inputs)))
        zero_points = op.constant(
            ov.Tensor(zeros, ov.Shape([outputs, groups, 1]), ov.Type.u4), shared_memory=False
        )
        shifted = op.subtract(op.convert(values, "f16"), op.convert(zero_points, "f16"))
        scaled = op.multiply(shifted, op.constant(scales.reshape(outputs, groups, 1)))
        return op.convert(
            op.reshape(scaled, op.constant(np.array([outputs, inputs], np.int64)), False), "f32"
        )

    def table(self, rows: int, width: int, spread: float) -> ov.Node:
        """f32 [rows, width] with values of that standard deviation."""
        values = _shared(self._source.take(rows * width, self._next()), [rows, width], ov.Type.u8)
        zero_points = op.constant(np.full((rows, 1), 128, np.uint8))
        shifted = op.subtract(op.convert(values, "f16"), op.convert(zero_points, "f16"))
        scales = np.full((rows, 1), spread / SPREAD_OF_8_BITS, np.float16)
        return op.convert(op.multiply(shifted, op.constant(scales)), "f32")

    def _next(self) -> int:
        self._place += 1
        return self._place

    @staticmethod
    def _turned(values: NDArray[Number], count: int, place: int) -> NDArray[Number]:
        """A copy of `count` of them, beginning elsewhere each time."""
        begin = place % (len(values) - count + 1)
        return values[begin : begin + count].copy()


def _shared(memory: NDArray[np.uint8], shape: list[int], element: ov.Type) -> ov.Node:
    """A constant that is the memory and no copy of it."""
    return op.constant(ov.Tensor(memory, ov.Shape(shape), element), shared_memory=True)
