"""Which layers go to which stage. Pure: numbers in, ranges out.

A stage's cost stands for the time that one token spends on it. In a full pipeline the slowest stage sets the
pace, so the split minimises the largest stage cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.errors import CutRefused

LayerRange = tuple[int, int]  # first and last layer, both included


def partition(
    layer_costs: Sequence[int], head_cost: int, embedding_cost: int, stages: int
) -> tuple[LayerRange, ...]:
    """Split the layers into `stages` consecutive ranges with the least possible largest stage cost.

    `embedding_cost` counts on the first stage, `head_cost` on the last. Among the best splits the one is
    taken whose stages are filled from the front. Every layer is in exactly one range, in order; every range
    has at least one layer. Raises CutRefused when there are fewer layers than stages, or less than one
    stage.
    """
    layers = len(layer_costs)
    check_stage_count(layers, stages)
    costs = [*layer_costs]
    costs[0] += embedding_cost
    costs[-1] += head_cost
    limit = _least_limit(costs, stages)
    return _filled(costs, limit, stages)


def check_stage_count(layers: int, stages: int) -> None:
    """Raise CutRefused unless 1 <= stages <= layers."""
    if stages < 1:
        raise CutRefused(f"cannot cut into {stages} stages", hint="ask for 1 stage or more")
    if stages > layers:
        raise CutRefused(
            f"cannot cut {layers} layers into {stages} stages", hint=f"ask for at most {layers} stages"
        )


def check_ranges(ranges: Sequence[LayerRange], layers: int) -> tuple[LayerRange, ...]:
    """Return the ranges if they cover layers 0 … layers - 1 once and in order; raise CutRefused otherwise."""
    if gap := gap_in(ranges):
        raise CutRefused(gap)
    given = ranges[-1][1] + 1 if ranges else 0
    if given != layers:
        raise CutRefused(f"the stages have {given} layers, but the model has {layers}")
    return tuple(ranges)


def gap_in(ranges: Sequence[LayerRange]) -> str:
    """Why the ranges are not one row of layers from layer 0 on; nothing when they are."""
    expected = 0
    for stage, (first, last) in enumerate(ranges):
        if first != expected:
            return f"stage {stage} starts at layer {first}, but layer {expected} comes next"
        if last < first:
            return f"stage {stage} has no layers: it goes from {first} to {last}"
        expected = last + 1
    return ""


def ranges_from_counts(counts: Sequence[int], layers: int) -> tuple[LayerRange, ...]:
    """Turn layers per stage, such as (18, 12), into ranges.

    Raises CutRefused unless they add up to `layers`.
    """
    if not counts or min(counts) < 1:
        raise CutRefused(f"every stage needs a layer: {list(counts)}")
    if sum(counts) != layers:
        raise CutRefused(f"{list(counts)} are {sum(counts)} layers, but the model has {layers}")
    ends = [sum(counts[: stage + 1]) for stage in range(len(counts))]
    return tuple((end - count, end - 1) for count, end in zip(counts, ends, strict=True))


def stage_costs(
    ranges: Sequence[LayerRange], layer_costs: Sequence[int], head_cost: int, embedding_cost: int
) -> tuple[int, ...]:
    """Cost of each stage, with the embedding on the first and the head on the last."""
    costs = [sum(layer_costs[first : last + 1]) for first, last in ranges]
    costs[0] += embedding_cost
    costs[-1] += head_cost
    return tuple(costs)


def _least_limit(costs: Sequence[int], stages: int) -> int:
    """Smallest limit under which the costs fit into at most `stages` consecutive groups (binary search)."""
    low, high = max(costs), sum(costs)
    while low < high:
        middle = (low + high) // 2
        if _groups_needed(costs, middle) <= stages:
            high = middle
        else:
            low = middle + 1
    return low


def _groups_needed(costs: Sequence[int], limit: int) -> int:
    """How many groups a greedy filling needs; no group exceeds `limit` >= max(costs)."""
    groups, filled = 1, 0
    for cost in costs:
        if filled + cost > limit:
            groups, filled = groups + 1, 0
        filled += cost
    return groups


def _filled(costs: Sequence[int], limit: int, stages: int) -> tuple[LayerRange, ...]:
    """Fill stages up to the limit from the front, keeping one layer for each stage still to come."""
    ranges: list[LayerRange] = []
    first = 0
    for stages_after in reversed(range(stages)):
        last, filled = first, costs[first]
        while last + 1 < len(costs) - stages_after and filled + costs[last + 1] <= limit:
            last += 1
            filled += costs[last]
        ranges.append((first, last))
        first = last + 1
    return tuple(ranges)
