"""Where a model can be cut, found without looking at a single layer name. Pure, except for its errors.

The algorithm is that of research/families.md section 2, exact on 38 model variants:

- *taint*: a node is active when its value depends on the tokens; it also knows the state variables that its
  value depends on. Masks, rotary tables and decompressed weights are neither: each stage recomputes them.
- *path*: the active nodes whose value reaches the logits.
- *dominators*: path nodes that every route from tokens to logits passes, found in one linear pass.
- *layers* are found from the state variables: variables with no rank-3 dominator between them form one layer.
- *boundary*: the last rank-3 dominator before a layer's first use of its state, that is the residual stream.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetchat.cutter.view import GraphView
from fleetchat.errors import CutRefused


@dataclass(frozen=True, slots=True)
class Taint:
    """For each node: does its value depend on tokens, and on which variables (bit i = variables[i])."""

    active: tuple[bool, ...]
    states: tuple[int, ...]
    variables: tuple[str, ...]

    def tainted(self, index: int) -> bool:
        """True when a stage can have the node's value only by computing layers."""
        return self.active[index] or self.states[index] != 0

    def variables_of(self, index: int) -> tuple[str, ...]:
        bits = self.states[index]
        return tuple(name for i, name in enumerate(self.variables) if bits >> i & 1)


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model and the nodes between them.

    `variables[i]` are the state variables of layer i. `boundaries[i]` is the node whose output goes from
    layer i to layer i + 1. `embedding` is the first rank-3 dominator, `head` the last one of the hidden
    width: what lies behind it makes logits of hidden rows. `hidden` is the width of the residual stream.
    """

    taint: Taint
    variables: tuple[tuple[str, ...], ...]
    boundaries: tuple[int, ...]
    embedding: int
    head: int
    result: int
    hidden: int
    vocabulary: int

    @property
    def count(self) -> int:
        return len(self.variables)


@dataclass(frozen=True, slots=True)
class _Use:
    """Places on the path (first and last) that take a variable's state."""

    variable: str
    first: int
    last: int


def find_layers(view: GraphView) -> Layers:
    """Find the layers of a stateful causal language model.

    Raises CutRefused when it has no state, not exactly one output, or no boundary where one is needed,
    and for the decoder of an encoder-decoder.
    """
    _refuse_encoder(view)
    result = _only_result(view)
    taint = find_taint(view)
    path = find_path(view, taint, result)
    wide = [place for place in dominators(view, path) if _is_rank_3(view, path[place])]
    uses = _state_uses(view, taint, path)
    groups, places = _group(uses, wide)
    boundaries = tuple(path[place] for place in places)
    hidden = _hidden_width(view, path, wide, boundaries)
    return Layers(
        taint=taint,
        variables=groups,
        boundaries=boundaries,
        embedding=path[wide[0]],
        head=_head(view, path, wide, hidden, uses),
        result=result,
        hidden=hidden,
        vocabulary=_vocabulary(view, result),
    )


def find_taint(view: GraphView) -> Taint:
    """Mark, in topological order, what depends on tokens and on states."""
    variables = tuple(view.read_values)
    bit_of = {index: 1 << i for i, index in enumerate(view.read_values.values())}
    active, states = [False] * len(view), [0] * len(view)
    active[view.token_input] = True
    for index, node in enumerate(view.nodes):
        states[index] = bit_of.get(index, 0)
        for source in node.value_sources:
            active[index] |= active[source]
            states[index] |= states[source]
    return Taint(tuple(active), tuple(states), variables)


def find_path(view: GraphView, taint: Taint, result: int) -> tuple[int, ...]:
    """The active nodes whose value reaches `result`, in topological order. Assign sinks do not count."""
    if not taint.active[result]:
        raise CutRefused("the logits do not depend on the tokens")
    reached = value_reach(view, [result], lambda index: not taint.active[index])
    return tuple(index for index in sorted(reached) if taint.active[index])


def value_reach(view: GraphView, ends: Iterable[int], stop: Callable[[int], bool]) -> set[int]:
    """Every node that the values of `ends` depend on, `ends` included, not going past stop(index)."""
    waiting = list(ends)
    reached = set(waiting)
    while waiting:
        index = waiting.pop()
        if stop(index):
            continue
        for source in view[index].value_sources:
            if source not in reached:
                reached.add(source)
                waiting.append(source)
    return reached


def dominators(view: GraphView, path: Sequence[int]) -> list[int]:
    """Places on the path that every route from its start to its end passes.

    Number the path topologically, far(i) = greatest place that consumes node i: place i is on every route
    exactly when max(far(0) … far(i - 1)) <= i, because on the pruned path every edge leads on to the end.
    """
    place_of = {index: place for place, index in enumerate(path)}
    far = [0] * len(path)
    for place, index in enumerate(path):
        for source in view[index].value_sources:
            if source in place_of:
                far[place_of[source]] = place  # places ascend, so the last write is the greatest
    found, reach = [], 0
    for place in range(len(path)):
        if reach <= place:
            found.append(place)
        reach = max(reach, far[place])
    return found


def _only_result(view: GraphView) -> int:
    results = list(view.of_kind("Result"))
    if len(results) != 1:
        raise CutRefused(f"the model has {len(results)} outputs, not 1", hint="use a text-generation model")
    return results[0]


def _refuse_encoder(view: GraphView) -> None:
    """What the decoder takes from the encoder goes to every layer, so to every stage."""
    names = {name for index in view.of_kind("Parameter") for name in view[index].names}
    if any(name.startswith("encoder_") for name in names):
        raise CutRefused(
            "the model is the decoder of an encoder-decoder: all its layers look at the encoder's output",
            hint="use a decoder-only text-generation model",
        )


def _is_rank_3(view: GraphView, index: int) -> bool:
    node = view[index]
    return node.f32 and node.shape is not None and len(node.shape) == 3 and node.shape[2] > 0


def _state_uses(view: GraphView, taint: Taint, path: Sequence[int]) -> list[_Use]:
    """Where on the path each variable is used: nodes that consume an inactive node depending on it."""
    if not taint.variables:
        raise CutRefused("the model keeps no state", hint="export it as a stateful model with past")
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, index in enumerate(path):
        for source in view[index].value_sources:
            if taint.active[source] or not taint.states[source]:
                continue
            for variable in taint.variables_of(source):
                first.setdefault(variable, place)
                last[variable] = place
    unused = [variable for variable in taint.variables if variable not in first]
    if unused:
        raise CutRefused(f"{len(unused)} state variables do not reach the logits, {unused[0]!r} among them")
    return sorted((_Use(name, first[name], last[name]) for name in first), key=lambda use: use.first)


def _group(uses: Sequence[_Use], wide: Sequence[int]) -> tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]:
    """Split variables into layers, and give the place of the boundary between each two."""
    groups: list[list[str]] = [[uses[0].variable]]
    boundaries: list[int] = []
    end = uses[0].last
    for use in uses[1:]:
        before = bisect_left(wide, use.first) - 1  # last wide dominator before the first use
        if before >= 0 and wide[before] >= end:
            boundaries.append(wide[before])
            groups.append([])
        groups[-1].append(use.variable)
        end = max(end, use.last)
    return tuple(tuple(sorted(group)) for group in groups), tuple(boundaries)


def _hidden_width(
    view: GraphView, path: Sequence[int], wide: Sequence[int], boundaries: Sequence[int]
) -> int:
    """Width of the residual stream: that of the boundaries, or of the embedding in a one-layer model."""
    if not wide:
        raise CutRefused("no tensor of rank 3 lies on every way from tokens to logits")
    widths = {_width(view, index) for index in boundaries} or {_width(view, path[wide[0]])}
    if len(widths) > 1:
        raise CutRefused(f"the hidden width changes from layer to layer: {sorted(widths)}")
    return widths.pop()


def _width(view: GraphView, index: int) -> int:
    shape = view[index].shape
    assert shape is not None
    return shape[-1]


def _head(
    view: GraphView, path: Sequence[int], wide: Sequence[int], hidden: int, uses: Sequence[_Use]
) -> int:
    """The last dominator of the hidden width behind the last use of a state: the input of lm_head."""
    end = max(use.last for use in uses)
    places = [place for place in wide if place >= end and _width(view, path[place]) == hidden]
    if not places:
        raise CutRefused(f"no tensor of the hidden width {hidden} leads from the last layer to the logits")
    return path[places[-1]]


def _vocabulary(view: GraphView, result: int) -> int:
    shape = view[view[result].sources[0]].shape
    if shape is None or len(shape) != 3 or shape[2] < 1:
        raise CutRefused(f"the logits have the shape {shape}, not [batch, rows, vocabulary]")
    return shape[2]
