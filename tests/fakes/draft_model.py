"""A causal model whose logits depend on all the ids it was fed, and which notes what it was asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetchat.fleet.draft.interface import ShouldStop, never

VOCABULARY = 40


def logits_after(ids: Sequence[int], vocabulary: int = VOCABULARY) -> NDArray[np.float32]:
    """Any fixed function of the whole sequence."""
    random = np.random.default_rng([7, *ids])
    return 3 * random.standard_normal(vocabulary, dtype=np.float32)


class FakeCache:
    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self._ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self._ids)

    def truncate(self, length: int) -> None:
        del self._ids[length:]

    def feed(self, token_ids: Sequence[int], should_stop: ShouldStop = never) -> NDArray[np.float32] | None:
        if self._model.fails_after == len(self._model.fed):
            raise RuntimeError("Exception from src/core.cpp:12:\n\nout of memory\n")
        for start in range(0, len(token_ids), self._model.rows_at_once):
            if should_stop():
                return None
            self._ids.extend(token_ids[start : start + self._model.rows_at_once])
        self._model.fed.append(tuple(token_ids))
        return logits_after(self._ids, self._model.vocabulary)


class FakeModel:
    """`fed` has the rows of every feed; after `fails_after` of them it fails."""

    name = "small"

    def __init__(self, *, vocabulary: int = VOCABULARY, rows_at_once: int = 512) -> None:
        self.vocabulary = vocabulary
        self.rows_at_once = rows_at_once
        self.fails_after = -1
        self.fed: list[tuple[int, ...]] = []
        self.caches = 0

    def new_cache(self) -> FakeCache:
        self.caches += 1
        return FakeCache(self)
