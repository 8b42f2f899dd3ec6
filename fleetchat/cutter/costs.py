"""What a layer costs, by the weights that one token touches. Pure.

On one core a matrix product takes its time by the *values* of its weights, whether they are stored in 4 or
8 bits (both are unpacked before use), so values are counted, not bytes. The rest of a layer, norms,
rotation, attention, takes a time that depends little on the weights: it is counted by operation. With
OPERATION_COST the default model (30 layers of 3.5M values, lm_head of 28M) gives 18 and 12 layers, which is
where two stages measured equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from fleetchat.cutter.boundary import Layers, value_reach
from fleetchat.cutter.view import GraphView

OPERATION_COST = 16_384  # weight values worth the time of one small operation (measured: about 2 us)


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of each part of a model, in weight values touched per token.

    `embedding` is 0: a lookup touches one row. `weight_bytes` are the bytes of the same parts as stored, in
    the order embedding, layers, head.
    """

    layers: tuple[int, ...]
    head: int
    embedding: int
    weight_bytes: tuple[int, ...]


def find_costs(view: GraphView, layers: Layers) -> Costs:
    """Count each layer's own weights and operations, and those of the head.

    Constants that several layers reach (masks, rotary tables) are each stage's to recompute and count in
    none. A table that embedding and head share counts in the head.
    """
    cuts = [layers.embedding, *layers.boundaries, layers.head]
    embedding = _weights(view, value_reach(view, [layers.embedding], lambda index: False))
    segments = [_segment(view, start, end) for start, end in pairwise(cuts)]
    shared = _shared(view, segments)
    own = [segment - shared for segment in segments]
    head = _segment(view, layers.head, layers.result)
    return Costs(
        layers=tuple(_cost(view, layers, segment) for segment in own),
        head=_cost(view, layers, head),
        embedding=0,
        weight_bytes=tuple(
            sum(view[index].weight_bytes for index in part)
            for part in (embedding, *(_weights(view, segment) for segment in own), _weights(view, head))
        ),
    )


def _segment(view: GraphView, start: int, end: int) -> set[int]:
    """What the value of `end` needs beyond the value of `start`."""
    return value_reach(view, [end], lambda index: index == start) - {start}


def _weights(view: GraphView, indexes: Iterable[int]) -> set[int]:
    return {index for index in indexes if view[index].kind == "Constant"}


def _shared(view: GraphView, segments: Iterable[set[int]]) -> set[int]:
    counts = Counter(index for segment in segments for index in _weights(view, segment))
    return {index for index, count in counts.items() if count > 1}


def _cost(view: GraphView, layers: Layers, indexes: Iterable[int]) -> int:
    """Weight values, and operations that depend on tokens or states."""
    return sum(
        view[index].weight_values + (OPERATION_COST if layers.taint.tainted(index) else 0)
        for index in indexes
    )
