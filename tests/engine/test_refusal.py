"""Slices that no engine runs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import EngineSlice
from fleetchat.engine.refusal import StageShape, malformed, overflow
from fleetchat.ids import ChainId, SessionId, SessionKey

MIDDLE = StageShape(first_stage=False, last_stage=False, hidden=4, vocabulary=10)
FIRST = StageShape(first_stage=True, last_stage=False, hidden=4, vocabulary=10)


def item(
    *token_ids: int, first: int = 0, logit_rows: int = 0, hidden: NDArray[np.floating] | None = None
) -> EngineSlice:
    key = SessionKey(ChainId("0" * 32), SessionId(1))
    return EngineSlice(key, first, np.array(token_ids, dtype=np.int32), hidden, logit_rows)


def test_a_good_slice() -> None:
    assert malformed(item(0, 9, first=7), 7, FIRST) is None
    assert malformed(item(0, 9, hidden=np.zeros((2, 4), dtype=np.float16), logit_rows=2), 0, MIDDLE) is None


@pytest.mark.parametrize(
    ("bad", "shape", "fault"),
    [
        (item(1, first=8), FIRST, ("gap", "first is 8, the session has 7 cells")),
        (item(), FIRST, ("exception", "0 rows of logits wanted of 0 rows")),
        (item(1, logit_rows=2), FIRST, ("exception", "2 rows of logits wanted of 1 rows")),
        (item(1, logit_rows=-1), FIRST, ("exception", "-1 rows of logits wanted of 1 rows")),
        (item(1, 10), FIRST, ("exception", "a token id is outside the vocabulary of 10")),
        (item(-1, 1), FIRST, ("exception", "a token id is outside the vocabulary of 10")),
        (item(1), MIDDLE, ("exception", "hidden rows have shape None, not (1, 4)")),
        (
            item(1, hidden=np.zeros((2, 4), dtype=np.float32)),
            MIDDLE,
            ("exception", "hidden rows have shape (2, 4), not (1, 4)"),
        ),
    ],
)
def test_a_bad_slice(bad: EngineSlice, shape: StageShape, fault: tuple[str, str]) -> None:
    assert malformed(bad, 7, shape) == fault


def test_overflow_names_the_numbers() -> None:
    def told(kept: int, rows: int, others: int) -> tuple[str, str] | None:
        return overflow(kept=kept, rows=rows, others=others, reservation=10, budget=15)

    assert told(kept=6, rows=4, others=5) is None
    assert told(kept=7, rows=4, others=0) == (
        "overflow",
        "the session has 7 of its 10 cells in use, 4 more are wanted",
    )
    assert told(kept=6, rows=4, others=6) == ("overflow", "12 of 15 cells are in use, 4 more are wanted")
