"""A model's graph as plain values, so that cuts can be planned (and tested) without OpenVINO.

Nodes are numbered in topological order. OpenVINO orders a file's graph the same way at each read, so a number
found in the view means the same node in every fresh `read_model` of that file; `nodes_like` guards that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import openvino as ov

from fleetchat.errors import CutRefused

Shape = tuple[int, ...]  # -1 = dynamic

TOKEN_INPUTS = ("input_ids", "inputs_embeds")


@dataclass(frozen=True, slots=True)
class NodeView:
    """One operation.

    `kind` is its type, `sources` are the nodes that feed its inputs, `shape` and `f32` describe its only
    output (shape None: several outputs, or unknown rank). `names` are tensor names, given for Parameters
    only. `weight_bytes` and `weight_values` are above 0 for Constants only, `scalar` is the number in a
    Constant of one.
    """

    kind: str
    sources: tuple[int, ...] = ()
    shape: Shape | None = None
    f32: bool = True
    names: frozenset[str] = frozenset()
    variable: str | None = None
    weight_bytes: int = 0
    weight_values: int = 0
    scalar: float | None = None

    @property
    def value_sources(self) -> tuple[int, ...]:
        """The nodes whose *values* this node's value depends on.

        A ShapeOf sees a shape only. A ReadValue's value is its state; the initialiser only shapes it after
        a reset.
        """
        return () if self.kind in ("ShapeOf", "ReadValue") else self.sources


@dataclass(frozen=True)
class GraphView:
    """All nodes of a model in topological order."""

    nodes: tuple[NodeView, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> NodeView:
        return self.nodes[index]

    def of_kind(self, kind: str) -> Iterator[int]:
        return (index for index, node in enumerate(self.nodes) if node.kind == kind)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes that take its value as an input of any sort."""
        lists: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for source in dict.fromkeys(node.sources):
                lists[source].append(index)
        return tuple(map(tuple, lists))

    @cached_property
    def token_input(self) -> int:
        """The Parameter that carries the tokens, found by its interface name."""
        found = [index for index in self.of_kind("Parameter") if self.nodes[index].names & set(TOKEN_INPUTS)]
        if len(found) != 1:
            raise CutRefused(f"the model has {len(found)} inputs named input_ids or inputs_embeds, not 1")
        return found[0]

    @cached_property
    def read_values(self) -> dict[str, int]:
        """ReadValue node of each state variable."""
        return {self._variable(index): index for index in self.of_kind("ReadValue")}

    @cached_property
    def assigns(self) -> dict[str, int]:
        """Assign node of each state variable."""
        return {self._variable(index): index for index in self.of_kind("Assign")}

    def _variable(self, index: int) -> str:
        variable = self.nodes[index].variable
        if variable is None:
            raise CutRefused(f"node {index} ({self.nodes[index].kind}) has no state variable")
        return variable


def view_of(model: ov.Model) -> GraphView:
    """Describe the graph of `model`."""
    ordered = model.get_ordered_ops()
    index_of = {node.get_name(): index for index, node in enumerate(ordered)}
    return GraphView(tuple(_node_view(node, index_of) for node in ordered))


def nodes_like(view: GraphView, model: ov.Model) -> Sequence[ov.Node]:
    """The nodes of a fresh read of the viewed file, numbered as in the view."""
    ordered: Sequence[ov.Node] = model.get_ordered_ops()
    if [node.get_type_name() for node in ordered] != [node.kind for node in view.nodes]:
        raise CutRefused("the model file changed while it was being cut", hint="start the build again")
    return ordered


def _node_view(node: ov.Node, index_of: dict[str, int]) -> NodeView:
    kind = node.get_type_name()
    if kind == "Constant":
        shape = tuple(node.get_output_shape(0))
        values = prod(shape)
        return NodeView(
            kind,
            shape=shape,
            weight_bytes=int(node.get_byte_size()),
            weight_values=values,
            scalar=float(node.data.item()) if values == 1 and node.get_element_type().bitwidth >= 8 else None,
        )
    sources = tuple(index_of[node.input_value(i).get_node().get_name()] for i in range(node.get_input_size()))
    single = node.get_output_size() == 1
    return NodeView(
        kind,
        sources,
        shape=_shape(node.get_output_partial_shape(0)) if single else None,
        f32=single and node.get_output_element_type(0) == ov.Type.f32,
        names=frozenset(node.output(0).get_names()) if kind == "Parameter" else frozenset(),
        variable=str(node.get_variable_id()) if kind in ("ReadValue", "Assign") else None,
    )


def _shape(partial: ov.PartialShape) -> Shape | None:
    if partial.rank.is_dynamic:
        return None
    return tuple(size.get_length() if size.is_static else -1 for size in partial)
