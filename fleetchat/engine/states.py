"""How the state variables of a shard hold its KV cells, found out by looking at their shapes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleetchat.engine.precision import Precision

SCALE_BYTES = 8  # scale and zero point, f32 each, of one head's u8 keys or values in one cell

Shape = tuple[int, ...]


class UnsuitableState(ValueError):
    """A state does not hold one cell a token, e.g. that of a state-space layer: it cannot be rolled back."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """`axes` has the sequence axis of each state by name; the rest counts what a cell holds in all states."""

    axes: dict[str, int]
    values: int  # scalars
    heads: int  # key heads and value heads of all layers

    def cell_bytes(self, precision: Precision) -> int:
        """Bytes of a cell as OpenVINO stores it, without over-allocation."""
        if precision is Precision.EXACT:
            return 4 * self.values
        return self.values + SCALE_BYTES * self.heads


def state_layout(before: Mapping[str, Shape], after: Mapping[str, Shape], rows: int) -> StateLayout:
    """From the states' shapes with `rows` cells and with one more. Raises UnsuitableState."""
    axes, values, heads = {}, 0, 0
    for name, old in before.items():
        new = after[name]
        changed = [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(changed) != 1 or (old[changed[0]], new[changed[0]]) != (rows, rows + 1):
            raise UnsuitableState(f"{name} is {list(old)} with {rows} tokens, {list(new)} with one more")
        axes[name] = changed[0]
        cell = math.prod(new) // (rows + 1)
        values += cell
        heads += cell // new[-1]
    return StateLayout(axes, values, heads)
