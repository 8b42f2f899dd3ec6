"""The inputs of one request, written in place step after step. No OpenVINO here.

A tensor lies over memory of ours that is larger than it needs to be; another number of rows changes its
shape and nothing else. Making tensors and handing them to the request costs 50 µs an input when the caches
are cold, as they are after every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


class Tensor(Protocol):
    """Over the memory of an array; its shape may become any that the array has room for."""

    shape: Shape


class StepInput:
    """One input. `place` makes a tensor over an array, gives it a shape and hands it to the request."""

    def __init__(self, dtype: type[np.number], place: Callable[[NDArray[np.number], Shape], Tensor]) -> None:
        self._dtype = dtype
        self._place = place
        self._memory: NDArray[np.number] | None = None  # kept alive: the tensor points to it
        self._tensor: Tensor | None = None
        self._shape: Shape = ()

    def write(self, values: NDArray[np.number]) -> None:
        """Copy `values` into the input."""
        self.opened(values.shape)[...] = values

    def opened(self, shape: Shape) -> NDArray[np.number]:
        """The input's memory with a new shape, to be filled by the caller."""
        size = math.prod(shape)
        memory = self._memory
        if memory is None or memory.size < size:
            memory = np.zeros(size, dtype=self._dtype)
        self.show(memory, shape)
        return memory[:size].reshape(shape)

    def show(self, memory: NDArray[np.number], shape: Shape) -> None:
        """Let the input be the beginning of `memory`, a contiguous array of one dimension."""
        if self._tensor is None or memory is not self._memory:
            self._memory, self._tensor = memory, self._place(memory, shape)
        elif shape != self._shape:
            self._tensor.shape = shape
        self._shape = shape
