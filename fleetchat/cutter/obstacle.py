"""Why a model has fewer places to cut than layers: said in the refusal. Pure.

Only explains what `boundary.find_layers` found, so it may look at attention operations by their kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from fleetchat.cutter.boundary import Layers, find_path
from fleetchat.cutter.view import GraphView

_ATTENTION = "ScaledDotProductAttention"
_KEYS = 1  # input of an attention: query, key, value

NOT_RANK_3 = "what goes from layer to layer is no tensor of the shape [batch, rows, hidden]"
SECOND_TENSOR = "each layer takes another tensor besides the hidden state, such as per-layer embeddings"


def find_obstacle(view: GraphView, layers: Layers) -> str | None:
    """What keeps two attentions together that a cut could part; None when nothing does."""
    path = find_path(view, layers.taint, layers.result)
    place_of = {index: place for place, index in enumerate(path)}
    attentions = [place for place, index in enumerate(path) if view[index].kind == _ATTENTION]
    boundaries = sorted(place_of[index] for index in layers.boundaries)
    together = [
        (first, second) for first, second in pairwise(attentions) if not _parted(first, second, boundaries)
    ]
    if not together:
        return None
    shared = _shared_keys(view, [path[place] for place in attentions])
    if shared:
        return f"{len(shared)} of the {len(attentions)} attention layers use the KV cache of another layer"
    least = min(_fewest_tensors(view, path, place_of, first, second) for first, second in together)
    return SECOND_TENSOR if least > 1 else NOT_RANK_3


def _parted(first: int, second: int, boundaries: Sequence[int]) -> bool:
    """Is there a boundary between two places."""
    following = bisect_left(boundaries, first)
    return following < len(boundaries) and boundaries[following] < second


def _shared_keys(view: GraphView, attentions: Sequence[int]) -> list[int]:
    """The attentions whose keys are kept by one before them."""
    kept = {view[index].sources[0]: variable for variable, index in view.assigns.items()}
    seen: set[str] = set()
    shared = []
    for attention in attentions:
        variables = _nearest_kept(view, view[attention].sources[_KEYS], kept)
        if variables & seen:
            shared.append(attention)
        seen |= variables
    return shared


def _nearest_kept(view: GraphView, index: int, kept: dict[int, str]) -> set[str]:
    """State variables that are written from what `index` is computed from, nearest ones only."""
    found: set[str] = set()
    waiting, reached = [index], {index}
    while waiting:
        node = waiting.pop()
        if node in kept:
            found.add(kept[node])
            continue
        fresh = [source for source in view[node].value_sources if source not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    return found


def _fewest_tensors(
    view: GraphView, path: Sequence[int], place_of: dict[int, int], first: int, second: int
) -> int:
    """The least number of tensors that cross any one place between two others."""
    farthest = [0] * len(path)
    for place, index in enumerate(path):
        for source in view[index].value_sources:
            if source in place_of:
                farthest[place_of[source]] = place
    return min(
        sum(farthest[earlier] > place for earlier in range(place + 1)) for place in range(first, second)
    )
