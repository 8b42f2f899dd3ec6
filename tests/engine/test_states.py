"""Reading a shard's cells off the shapes of its states."""

from __future__ import annotations

import pytest

from fleetchat.engine.precision import Precision
from fleetchat.engine.states import Shape, UnsuitableState, state_layout


def test_usual_and_transposed_layouts() -> None:
    before = {"k": (1, 3, 8, 64), "v": (8, 1, 2, 16)}
    after = {"k": (1, 3, 9, 64), "v": (9, 1, 2, 16)}
    layout = state_layout(before, after, 8)
    assert layout.axes == {"k": 2, "v": 0}
    assert layout.values == 3 * 64 + 2 * 16
    assert layout.heads == 5


def test_bytes_of_a_cell() -> None:
    layout = state_layout({"k": (1, 3, 8, 64)}, {"k": (1, 3, 9, 64)}, 8)
    assert layout.cell_bytes(Precision.EXACT) == 4 * 192
    assert layout.cell_bytes(Precision.FAST) == 192 + 3 * 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((1, 16, 64), (1, 16, 64)),  # the state of a state-space layer
        ((1, 3, 4, 64), (1, 3, 4, 64)),  # a full sliding window
        ((1, 3, 8, 64), (2, 3, 9, 64)),
        ((1, 3, 4, 64), (1, 3, 5, 64)),
        ((1, 3, 8, 64), (1, 3, 16, 64)),
    ],
)
def test_other_states_are_refused(old: Shape, new: Shape) -> None:
    with pytest.raises(UnsuitableState, match="h is"):
        state_layout({"h": old}, {"h": new}, 8)
