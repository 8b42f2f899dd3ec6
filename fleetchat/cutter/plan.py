"""What one stage is made of, decided before the graph is touched. Pure, except for its errors.

A stage recomputes everything that depends on neither tokens nor states. What it cannot have is the *shape*
of a tensor that lives in another stage; the whole model asks for such shapes with ShapeOf (the batch and
length of layer 0's keys, say). Each of these *foreign* ShapeOf is redirected to a tensor of this stage of
the same shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetchat.cutter.boundary import Layers, value_reach
from fleetchat.cutter.view import GraphView, Shape
from fleetchat.errors import CutRefused


@dataclass(frozen=True, slots=True)
class Redirect:
    """Let the ShapeOf node `shape_of` look at `target` instead of the foreign node `source`.

    target None: the shape follows from batch and rows alone; the graph editor finds out how by a probe.
    """

    shape_of: int
    source: int
    target: int | None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage: layers `first` … `last`, from the output of node `start` to that of node `end`.

    `start` None: the stage takes tokens. `end` is a boundary, or the Result of the logits for the last stage.
    """

    first: int
    last: int
    start: int | None
    end: int
    is_last: bool
    variables: tuple[str, ...]
    reached: frozenset[int]
    redirects: tuple[Redirect, ...]


def plan_stage(view: GraphView, layers: Layers, first: int, last: int) -> StagePlan:
    """Plan the stage of layers first … last. Raises CutRefused when it would need values of other stages."""
    start = layers.boundaries[first - 1] if first > 0 else None
    is_last = last == layers.count - 1
    end = layers.result if is_last else layers.boundaries[last]
    variables = tuple(name for layer in layers.variables[first : last + 1] for name in layer)
    ends = [end, *(_assign_of(view, name) for name in variables)]
    own = value_reach(view, ends, lambda index: index == start)
    _check_own(view, layers, own, variables, first)
    reached, foreign = _full_reach(view, layers, ends, own, start)
    finder = _TargetFinder(view, layers, range(first, last + 1), own)
    redirects = tuple(Redirect(index, source, finder.target(source)) for index, source in foreign)
    return StagePlan(first, last, start, end, is_last, variables, frozenset(reached), redirects)


def _assign_of(view: GraphView, variable: str) -> int:
    if variable not in view.assigns:
        raise CutRefused(f"the state variable {variable!r} is read but never written")
    return view.assigns[variable]


def _check_own(
    view: GraphView, layers: Layers, own: Iterable[int], variables: Sequence[str], first: int
) -> None:
    read = {view[index].variable for index in own if view[index].kind == "ReadValue"}
    if read != set(variables):
        names = sorted(map(str, read.symmetric_difference(variables)))
        raise CutRefused(f"layer {first} ff. would use states of other layers: {', '.join(names)}")
    if first > 0 and view.token_input in own:
        raise CutRefused(f"layer {first} uses the tokens directly; this model cannot be cut there")


def _full_reach(
    view: GraphView, layers: Layers, ends: Sequence[int], own: set[int], start: int | None
) -> tuple[set[int], list[tuple[int, int]]]:
    """Everything that the ends need, shapes included, and the foreign ShapeOf met, with their sources."""
    reached, waiting = set(ends), list(ends)
    foreign: list[tuple[int, int]] = []
    while waiting:
        index = waiting.pop()
        if index == start:
            continue
        sources = view[index].sources
        if view[index].kind == "ShapeOf" and layers.taint.tainted(sources[0]) and sources[0] not in own:
            foreign.append((index, sources[0]))
            continue
        fresh = [source for source in sources if source not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    return reached, sorted(foreign)


@dataclass(frozen=True, slots=True)
class _TargetFinder:
    """Finds, for a foreign tensor, the tensor of this stage that has the same shape at every step."""

    view: GraphView
    layers: Layers
    own_layers: range
    own: set[int]

    def target(self, source: int) -> int | None:
        """The own counterpart of a past or present state; None for an activation."""
        if not self.layers.taint.active[source]:
            return self._past(source)
        for variable, assign in self.view.assigns.items():
            if self.view[assign].sources[0] == source:
                own = self._own_variable(variable)
                return self._same_pattern(source, self.view[self.view.assigns[own]].sources[0])
        return None

    def _past(self, source: int) -> int:
        """Follow the same kinds of node below an own ReadValue as lead from the foreign one to `source`."""
        kinds, read_value = self._chain(source)
        node = self.view.read_values[self._own_variable(str(self.view[read_value].variable))]
        for kind in kinds:
            following = [
                index
                for index in self.view.consumers[node]
                if self.view[index].kind == kind and index in self.own
            ]
            if not following:
                raise CutRefused(
                    f"no {kind} follows the state of layer {self.own_layers[0]} as in other layers"
                )
            node = following[0]
        return self._same_pattern(source, node)

    def _chain(self, source: int) -> tuple[list[str], int]:
        """Kinds of the nodes from the ReadValue (not included) down to `source`, and the ReadValue."""
        kinds: list[str] = []
        while self.view[source].kind != "ReadValue":
            kinds.append(self.view[source].kind)
            with_state = [i for i in self.view[source].value_sources if self.layers.taint.states[i]]
            if len(with_state) != 1:
                raise CutRefused(f"a shape depends on {len(with_state)} states at once (node {source})")
            source = with_state[0]
        return kinds[::-1], source

    def _own_variable(self, foreign: str) -> str:
        """A variable of the first own layer that has one with the same dynamic axes, best of the same shape.

        The first such layer: a later one may itself depend on the shape asked for, which would be a loop.
        """
        wanted = self._state_shape(foreign)
        for layer in self.own_layers:
            alike = [
                variable
                for variable in self.layers.variables[layer]
                if _pattern(self._state_shape(variable)) == _pattern(wanted)
            ]
            if alike:
                return next((name for name in alike if self._state_shape(name) == wanted), alike[0])
        raise CutRefused(
            f"layers {self.own_layers[0]} to {self.own_layers[-1]} have no state like {foreign!r}"
        )

    def _state_shape(self, variable: str) -> Shape:
        shape = self.view[self.view.read_values[variable]].shape
        if shape is None:
            raise CutRefused(f"the state variable {variable!r} has no known rank")
        return shape

    def _same_pattern(self, source: int, target: int) -> int:
        theirs, ours = self.view[source].shape, self.view[target].shape
        if theirs is None or ours is None or _pattern(theirs) != _pattern(ours):
            raise CutRefused(f"a shape {theirs} of another stage has no equal here, only {ours}")
        return target


def _pattern(shape: Shape) -> tuple[bool, ...]:
    """Which axes are dynamic."""
    return tuple(size < 0 for size in shape)
