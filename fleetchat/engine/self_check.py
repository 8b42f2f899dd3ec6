"""Whether an engine computes what it should on this device: a few short runs before it serves anybody. Pure.

Rollback, one row against several, one session against several, and two sessions in turn with a reset
between. The rows of two sessions tell how far wrong rows lie apart: what is measured is the distance of
two rows that should be equal, in parts of that. Right `exact` rows come to 2e-6, right `fast` rows to 0.04
and wrong ones to about 1, so the borders need no knowledge of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.interface import EngineSlice, StageEngine
from fleetchat.engine.precision import Precision
from fleetchat.engine.refusal import StageShape
from fleetchat.ids import ChainId, SessionId, SessionKey

FARTHEST = {Precision.EXACT: 1e-3, Precision.FAST: 0.25}
ROWS = 38  # beyond one block of the paged engine
KEPT = 34  # of them stay in the rollback
SINGLES = 2
_CHAIN = ChainId("")
_ONE, _TWO, _THREE = (SessionKey(_CHAIN, SessionId(number)) for number in (1, 2, 3))

Rows = NDArray[np.float32]
Distance = Callable[[Rows, Rows], float]


def self_check(
    engine: StageEngine, shape: StageShape, precision: Precision | str, *, rolls_back: bool = True
) -> str | None:
    """None when the engine may serve, else what is wrong. Its own sessions are gone afterwards.

    An engine with fewer cells than the check takes is not checked. `rolls_back` False leaves out what the
    model's states do not allow.
    """
    if engine.traits.cells < 4 * ROWS + 3 * engine.traits.block_size:
        return None
    check = _Check(engine, shape, rolls_back=rolls_back)
    try:
        for name, distance in check.distances():
            if not distance <= FARTHEST[Precision(precision)]:
                return f"{name}: rows that should be equal differ by {distance:.2g} of what two sessions do"
    except _Fault as fault:
        return str(fault)
    finally:
        for key in (_ONE, _TWO, _THREE):
            engine.forget(key)
    return None


class _Fault(Exception):
    """The engine refused a slice."""


class _Check:
    def __init__(self, engine: StageEngine, shape: StageShape, *, rolls_back: bool) -> None:
        self._engine = engine
        self._rolls_back = rolls_back
        self._shape = shape
        random = np.random.default_rng(7)
        self._ids = random.integers(0, shape.vocabulary, (2, ROWS), dtype=np.int32)
        self._hidden = random.standard_normal((2, ROWS, shape.hidden), dtype=np.float32)

    def distances(self) -> Iterator[tuple[str, float]]:
        one, two = self._fresh(_THREE, 0), self._fresh(_TWO, 1)
        contrast = float(np.linalg.norm(one - two, axis=1).mean())

        def distance(got: Rows, wanted: Rows) -> float:
            return float(np.linalg.norm(got - wanted, axis=1).max()) / contrast

        self._run(_ONE, 0, 0, KEPT)
        yield "a reset", distance(self._fresh(_TWO, 1), two)
        yield "two sessions in turn", distance(self._run(_ONE, 0, KEPT, ROWS), one)
        if self._rolls_back:
            self._run(_ONE, 1, KEPT - 3, ROWS)  # rows of the other session, to be undone
            self._run(_ONE, 0, KEPT - 3, KEPT)
            yield "rollback", distance(self._run(_ONE, 0, KEPT, ROWS), one)
        else:
            self._run(_ONE, 0, 0, ROWS - SINGLES)
        last = range(ROWS - SINGLES, ROWS)
        singles = np.concatenate([self._run(_ONE, 0, row, row + 1) for row in last])
        yield "single rows", distance(singles, one[-SINGLES:])
        yield from self._together(distance, one, two)

    def _together(self, distance: Distance, one: Rows, two: Rows) -> Iterator[tuple[str, float]]:
        """A decode, a verify and a prefill slice as one batch."""
        pieces = [(_ONE, 0, ROWS - 1), (_TWO, 1, KEPT), (_THREE, 0, 0)]
        if self._engine.traits.sessions_per_batch < len(pieces):
            return
        outputs = self._run_all([self._slice(key, which, first, ROWS) for key, which, first in pieces])
        wanted = [one[-1:], two, one]
        for got, rows in zip(outputs, wanted, strict=True):
            yield "many sessions at once", distance(got[-len(rows) :], rows)

    def _fresh(self, key: SessionKey, which: int) -> Rows:
        """The last rows of a session that begins anew."""
        return self._run(key, which, 0, ROWS)[KEPT - ROWS :]

    def _run(self, key: SessionKey, which: int, first: int, end: int) -> Rows:
        return self._run_all([self._slice(key, which, first, end)])[0]

    def _run_all(self, slices: Sequence[EngineSlice]) -> list[Rows]:
        outputs = self._engine.run(slices)
        for output in outputs:
            if output.fault is not None:
                raise _Fault(output.fault[1])
        return [output.rows.copy() for output in outputs]

    def _slice(self, key: SessionKey, which: int, first: int, end: int) -> EngineSlice:
        hidden = None if self._shape.first_stage else self._hidden[which, first:end]
        wanted = min(end - first, ROWS - KEPT) if self._shape.last_stage else 0
        return EngineSlice(key, first, self._ids[which, first:end], hidden, wanted)
