"""How long a stage takes for one row, for 8 and for 64 rows: the edge with the clock."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from fleetchat.engine.fast_settings import CHUNK_ROWS, DECODE_ROWS, VERIFY_ROWS, Timing
from fleetchat.engine.interface import EngineSlice, StageEngine
from fleetchat.engine.refusal import StageShape
from fleetchat.errors import FleetError
from fleetchat.ids import ChainId, SessionId, SessionKey

ROUND = (CHUNK_ROWS, VERIFY_ROWS, DECODE_ROWS, DECODE_ROWS, DECODE_ROWS)  # rows of a session in turn
CELLS = sum(ROUND)
MOST_ROUNDS = 5
FEWEST_ROUNDS = 3  # the first may be slower than the others, the median does not see that
ENOUGH = 0.3  # seconds, after which no further round begins when there are enough of them

_KEY = SessionKey(ChainId(""), SessionId(0))


def time_stage(engine: StageEngine, shape: StageShape, clock: Callable[[], float]) -> Timing:
    """Medians over a few rounds of an engine that is warm. Raises FleetError when a run fails."""
    trial = _Trial(engine, shape, clock)
    began, rounds = clock(), 0
    while rounds < FEWEST_ROUNDS or (rounds < MOST_ROUNDS and clock() - began < ENOUGH):
        trial.round()
        rounds += 1
    engine.forget(_KEY)
    return Timing(*(median(trial.times[rows]) for rows in (DECODE_ROWS, VERIFY_ROWS, CHUNK_ROWS)))


class _Trial:
    def __init__(self, engine: StageEngine, shape: StageShape, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._shape = shape
        self._clock = clock
        self._random = np.random.default_rng(11)
        self.times: dict[int, list[float]] = {rows: [] for rows in ROUND}

    def round(self) -> None:
        """A session from its beginning: a prompt, a verify, single rows."""
        first = 0
        for rows in ROUND:
            item = self._slice(first, rows)
            started = self._clock()
            (output,) = self._engine.run([item])
            self.times[rows].append(self._clock() - started)
            if output.fault is not None:
                raise FleetError(f"the stage cannot be timed: {output.fault[1]}")
            first += rows

    def _slice(self, first: int, rows: int) -> EngineSlice:
        """Of a prompt only the last row's logits are wanted, of the others all."""
        ids = self._random.integers(0, self._shape.vocabulary, rows, dtype=np.int32)
        hidden = None
        if not self._shape.first_stage:
            hidden = self._random.standard_normal((rows, self._shape.hidden), dtype=np.float32)
        wanted = (1 if rows == CHUNK_ROWS else rows) if self._shape.last_stage else 0
        return EngineSlice(_KEY, first, ids, hidden, wanted)
