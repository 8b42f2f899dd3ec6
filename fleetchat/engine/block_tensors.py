"""The memory of KV blocks, laid out as the compiled model asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

CACHES = ("key_cache.", "value_cache.")
FIRST_BLOCKS = 16  # allocated at load


class BlockTensors:
    """The key and value blocks of all layers, [blocks, heads, cells, size] each.

    They grow by doubling. With u8 keys are quantised by channel within a block, values by token; the scales
    lie in the block itself, so that copying a block copies everything.
    """

    def __init__(self, request: ov.InferRequest, ports: Sequence[ov.ConstOutput]) -> None:
        self._request = request
        self._ports = [port for port in ports if port.get_any_name().startswith(CACHES)]
        shapes = [[int(d.get_length()) for d in list(port.get_partial_shape())[1:]] for port in self._ports]
        self._block_shapes = shapes
        self._tensors: list[ov.Tensor] = []
        self._views: list[NDArray[Any]] = []
        self.blocks = 0
        self.layers = len(self._ports) // 2
        values = (shape for port, shape in zip(self._ports, shapes, strict=True) if _is_value(port))
        self.block_size = next(values)[1] if shapes else 0  # u8 keys have more lines: their scales
        self.block_bytes = sum(
            int(np.prod(shape)) * port.get_element_type().size
            for port, shape in zip(self._ports, shapes, strict=True)
        )
        self.grow(FIRST_BLOCKS, FIRST_BLOCKS)

    def grow(self, needed: int, most: int) -> None:
        """Have at least `needed` blocks; the content stays. One tensor after the other is copied."""
        if needed <= self.blocks:
            return
        blocks = max(needed, min(most, 2 * self.blocks))
        for index, (port, shape) in enumerate(zip(self._ports, self._block_shapes, strict=True)):
            tensor = ov.Tensor(port.get_element_type(), ov.Shape([blocks, *shape]))
            view = tensor.data
            if index < len(self._tensors):
                view[: self.blocks] = self._views[index]
                self._tensors[index], self._views[index] = tensor, view
            else:
                self._tensors.append(tensor)
                self._views.append(view)
            self._request.set_tensor(port, tensor)
        self.blocks = blocks

    def copy(self, source: int, target: int) -> None:
        for view in self._views:
            view[target] = view[source]

    def clear(self) -> None:
        self._views.clear()
        self._tensors.clear()


def _is_value(port: ov.ConstOutput) -> bool:
    return str(port.get_any_name()).startswith("value_cache.")
