"""Write a small graph by hand, for tests of the planning code, which needs no OpenVINO."""

from __future__ import annotations

from fleetchat.cutter.view import GraphView, NodeView, Shape

HIDDEN: Shape = (-1, -1, 8)
STATE: Shape = (-1, 2, -1, 4)


class Sketch:
    """Adds nodes one by one; each call returns the number of the new node."""

    def __init__(self) -> None:
        self.nodes: list[NodeView] = []
        self.ids = self.add("Parameter", shape=(-1, -1), names=frozenset({"input_ids"}), f32=False)

    def add(
        self,
        kind: str,
        *sources: int,
        shape: Shape | None = None,
        names: frozenset[str] = frozenset(),
        f32: bool = True,
        variable: str | None = None,
        weight: int = 0,
    ) -> int:
        self.nodes.append(
            NodeView(kind, sources, shape, f32, names, variable, weight_bytes=weight, weight_values=weight)
        )
        return len(self.nodes) - 1

    def weight(self, values: int) -> int:
        return self.add("Constant", shape=(values,), weight=values)

    def embed(self, values: int = 100) -> int:
        return self.add("Gather", self.weight(values), self.ids, shape=HIDDEN)

    def read(self, variable: str, shape: Shape = STATE) -> int:
        """A past state, empty for the batch of the tokens."""
        batch = self.add("ShapeOf", self.ids, shape=(2,), f32=False)
        empty = self.add("Broadcast", batch, shape=shape)
        return self.add("ReadValue", empty, shape=shape, variable=variable)

    def append(self, variable: str, fresh: int, shape: Shape = STATE) -> int:
        """Past state and new rows joined and kept; returns the joined tensor."""
        past = self.add("Gather", self.read(variable, shape), shape=shape)
        present = self.add("Concat", past, fresh, shape=shape)
        self.add("Assign", present, variable=variable)
        return present

    def layer(self, x: int, name: str, *extra: int, width: int = 50, state: Shape = STATE) -> int:
        """Attention with its own K and V, added to the residual stream."""
        normed = self.add("Multiply", x, self.weight(1), shape=HIDDEN)
        query = self.add("MatMul", normed, self.weight(width), *extra, shape=(-1, 2, -1, 4))
        key = self.append(f"{name}.key", normed, state)
        value = self.append(f"{name}.value", normed, state)
        attended = self.add("ScaledDotProductAttention", query, key, value, shape=(-1, 2, -1, 4))
        projected = self.add("MatMul", attended, self.weight(width), shape=HIDDEN)
        return self.add("Add", x, projected, shape=HIDDEN)

    def head(self, x: int, values: int = 200) -> int:
        """Final norm, lm_head and the only output; returns the node of the norm."""
        normed = self.add("Multiply", x, self.weight(1), shape=HIDDEN)
        logits = self.add("MatMul", normed, self.weight(values), shape=(-1, -1, 32))
        self.add("Result", logits, shape=(-1, -1, 32))
        return normed

    def view(self) -> GraphView:
        return GraphView(tuple(self.nodes))
