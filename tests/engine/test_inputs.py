"""Inputs written in place: how often a tensor is made, and what it then holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.inputs import Shape, StepInput


@dataclass
class FakeTensor:
    memory: NDArray[np.number]
    shape: Shape

    @property
    def values(self) -> list[object]:
        count = int(np.prod(self.shape))
        assert count <= self.memory.size, "a tensor cannot outgrow its memory"
        return list(self.memory[:count].reshape(self.shape).tolist())


class Request:
    """Keeps what was handed to it."""

    def __init__(self) -> None:
        self.placed: list[FakeTensor] = []

    def place(self, memory: NDArray[np.number], shape: Shape) -> FakeTensor:
        self.placed.append(FakeTensor(memory, shape))
        return self.placed[-1]


def test_the_same_tensor_takes_fewer_rows_and_as_many_again() -> None:
    request = Request()
    held = StepInput(np.float32, request.place)
    for rows in (5, 1, 1, 5, 3):
        values = np.arange(2 * rows, dtype=np.float16).reshape(1, rows, 2)
        held.write(values)
        assert request.placed[-1].values == values.tolist()
    assert len(request.placed) == 1
    assert request.placed[0].memory.dtype == np.float32


def test_more_rows_than_ever_take_another_tensor() -> None:
    request = Request()
    held = StepInput(np.int64, request.place)
    held.write(np.array([[1, 2]]))
    held.write(np.array([[1, 2, 3]]))
    assert request.placed[-1].values == [[1, 2, 3]]
    assert len(request.placed) == 2


def test_shown_memory_is_not_copied() -> None:
    request = Request()
    held = StepInput(np.int64, request.place)
    memory = np.ones(8, dtype=np.int64)
    held.show(memory, (1, 3))
    memory[1] = 0
    held.show(memory, (1, 4))
    assert request.placed[0].memory is memory
    assert request.placed[0].values == [[1, 0, 1, 1]]
    grown = np.ones(16, dtype=np.int64)
    held.show(grown, (1, 9))
    assert [tensor.memory is grown for tensor in request.placed] == [False, True]
