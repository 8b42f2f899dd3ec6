"""The acceptance rule, and that a verified text is the text without drafts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetchat.engine.accept import accept, verify
from fleetchat.engine.sampling import draw_token
from fleetchat.errors import SliceFailed
from fleetchat.ids import SessionId
from fleetchat.wire.frames import Draw, Slice

GREEDY = Draw(temperature=0.0, top_p=1.0, top_k=0, penalty=1.0, seed=0, reply_start=0)
VOCABULARY = 12


@pytest.mark.parametrize(
    ("drafts", "drawn", "expected"),
    [
        ([], [5], 0),
        ([1, 2, 3], [1, 2, 3, 9], 3),
        ([1, 2, 3], [1, 2, 4], 2),
        ([1, 2, 3], [7], 0),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([1, 1], [1, 1, 1], 2),
    ],
)
def test_accept(drafts: list[int], drawn: list[int], expected: int) -> None:
    assert accept(drafts, drawn) == expected


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def logits_of(*best: int) -> NDArray[np.float32]:
    rows = np.zeros((len(best), VOCABULARY), dtype=np.float32)
    rows[np.arange(len(best)), best] = 5
    return rows


def test_verify_counts_up_to_the_first_mismatch() -> None:
    item = Slice(SessionId(1), 3, 0, ids(9, 1, 2, 3), drafts=3, draw=GREEDY)
    history = [0, 0, 0, 9, 1, 2, 3]
    assert verify(item, logits_of(1, 2, 3, 4), history) == (3, 4)
    assert verify(item, logits_of(1, 7, 3, 4), history) == (1, 7)
    assert verify(item, logits_of(6, 2, 3, 4), history) == (0, 6)


def test_verify_without_drafts_draws_the_last_row() -> None:
    item = Slice(SessionId(1), 0, 0, ids(4, 5, 6), draw=GREEDY)
    assert verify(item, logits_of(8), [4, 5, 6]) == (0, 8)


def test_rows_behind_the_first_mismatch_are_not_drawn() -> None:
    item = Slice(SessionId(1), 0, 0, ids(9, 1, 2), drafts=2, draw=GREEDY)
    rows = logits_of(7, 2, 3)
    rows[1:] = np.nan
    assert verify(item, rows, [9, 1, 2]) == (0, 7)
    agreeing = Slice(SessionId(1), 0, 0, ids(9, 7, 2), drafts=2, draw=GREEDY)
    with pytest.raises(SliceFailed):
        verify(agreeing, rows, [9, 7, 2])


def test_the_penalty_sees_accepted_drafts_and_nothing_before_the_reply() -> None:
    draw = Draw(temperature=0.0, top_p=1.0, top_k=0, penalty=3.0, seed=0, reply_start=2)
    rows = np.zeros((2, VOCABULARY), dtype=np.float32)
    rows[:, 1], rows[:, 2] = 6, 5
    item = Slice(SessionId(1), 1, 0, ids(1, 1), drafts=1, draw=draw)
    # Position 2: the 1s at positions 0 and 1 belong to the prompt. Position 3: the draft 1 at 2 counts.
    assert verify(item, rows, [1, 1, 1]) == (1, 2)


def test_rows_must_fit_the_drafts() -> None:
    item = Slice(SessionId(1), 0, 0, ids(9, 1), drafts=1, draw=GREEDY)
    with pytest.raises(ValueError, match="3 rows"):
        verify(item, logits_of(1, 2, 3), [9, 1])
    with pytest.raises(ValueError, match="draw None"):
        verify(Slice(SessionId(1), 0, 0, ids(9)), logits_of(1), [9])


def model_rows(history: Sequence[int], first: int, rows: int) -> NDArray[np.float32]:
    """A pretend model: logits at each of the last rows depend on all ids up to it."""
    return np.stack(
        [
            np.random.default_rng([*history[: first + row + 1], 7]).standard_normal(VOCABULARY)
            for row in range(rows)
        ]
    ).astype(np.float32)


def without_drafts(prompt: list[int], tokens: int, draw: Draw) -> list[int]:
    history = list(prompt)
    for _ in range(tokens):
        row = model_rows(history, len(history) - 1, 1)[0]
        history.append(draw_token(row, len(history), draw, history[draw.reply_start :]))
    return history[len(prompt) :]


@given(
    st.integers(0, 1000), st.sampled_from([0.0, 0.7, 1.5]), st.sampled_from([1.0, 1.4]), st.floats(0.0, 1.0)
)
@settings(max_examples=30, deadline=None)
def test_the_text_does_not_depend_on_the_drafts(
    seed: int, temperature: float, penalty: float, honesty: float
) -> None:
    prompt = [3, 1, 4]
    draw = Draw(temperature, 0.95, 8, penalty, seed, reply_start=len(prompt))
    wanted = without_drafts(prompt, 24, draw)
    random = np.random.default_rng(seed)
    history = list(prompt)
    while len(history) < len(prompt) + 20:
        first, done = len(history) - 1, len(history) - len(prompt)
        drafts = [
            token if random.random() < honesty else int(random.integers(VOCABULARY))
            for token in wanted[done : done + int(random.integers(0, 5))]
        ]
        item = Slice(SessionId(1), first, 0, ids(history[-1], *drafts), drafts=len(drafts), draw=draw)
        fed = history + drafts
        accepted, token = verify(item, model_rows(fed, first, 1 + len(drafts)), fed)
        history += [*drafts[:accepted], token]
    reply = history[len(prompt) :]
    assert reply == wanted[: len(reply)]
