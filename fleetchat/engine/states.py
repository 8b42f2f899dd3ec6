"""How the state variables of a shard hold its KV cells, found out by looking at their shapes. Pure.

A state whose shape does not depend on the tokens is *recurrent*: that of a convolution or of a state-space
layer. It is not made of cells, so nothing can be taken out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleetchat.engine.precision import Precision

SCALE_BYTES = 8  # scale and zero point, f32 each, of one head's u8 keys or values in one cell

Shape = tuple[int, ...]


class UnsuitableState(ValueError):
    """A state neither holds one cell a token nor is a recurrent one that was told of."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """`axes` has the sequence axis of each state by name; the rest counts what a cell holds in all states."""

    axes: dict[str, int]
    values: int  # scalars
    heads: int  # key heads and value heads of all layers
    fixed: int = 0  # scalars of the recurrent states of a session

    def cell_bytes(self, precision: Precision) -> int:
        """Bytes of a cell as OpenVINO stores it, without over-allocation."""
        if precision is Precision.EXACT:
            return 4 * self.values
        return self.values + SCALE_BYTES * self.heads

    def share_of_fixed(self, reservation: int) -> int:
        """Bytes of the recurrent states, shared out among the cells that a session may take."""
        return -(-4 * self.fixed // reservation)


def state_layout(
    before: Mapping[str, Shape], after: Mapping[str, Shape], rows: int, *, recurrent: bool = False
) -> StateLayout:
    """From the states' shapes with `rows` cells and with one more. Raises UnsuitableState.

    `recurrent` says that states which stay as they are belong to the model.
    """
    axes, values, heads, fixed = {}, 0, 0, 0
    for name, old in before.items():
        new = after[name]
        if recurrent and old == new:
            fixed += math.prod(new)
            continue
        changed = [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(changed) != 1 or (old[changed[0]], new[changed[0]]) != (rows, rows + 1):
            raise UnsuitableState(f"{name} is {list(old)} with {rows} tokens, {list(new)} with one more")
        axes[name] = changed[0]
        cell = math.prod(new) // (rows + 1)
        values += cell
        heads += cell // new[-1]
    return StateLayout(axes, values, heads, fixed)
