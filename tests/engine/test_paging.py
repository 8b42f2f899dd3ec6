"""Index inputs of one paged pass."""

from __future__ import annotations

import numpy as np

from fleetchat.engine.paging import PagedPass, Part

MIXED = PagedPass(
    (
        Part(past=40, rows=1, table=[7, 3], logit_rows=1),  # decode
        Part(past=0, rows=5, table=[0], logit_rows=0),  # a chunk of a prompt
        Part(past=63, rows=3, table=[1, 2, 9], logit_rows=3),  # verify
    )
)


def test_index_inputs_of_a_mixed_pass() -> None:
    inputs = MIXED.index_inputs()
    assert {name: values.tolist() for name, values in inputs.items()} == {
        "past_lens": [40, 0, 63],
        "subsequence_begins": [0, 1, 6, 9],
        "block_indices": [7, 3, 0, 1, 2, 9],
        "block_indices_begins": [0, 2, 3, 6],
        "max_context_len": 66,
    }
    assert {values.dtype for values in inputs.values()} == {np.dtype(np.int32)}


def test_positions_and_logit_rows() -> None:
    assert MIXED.rows == 9
    assert MIXED.positions().tolist() == [40, 0, 1, 2, 3, 4, 63, 64, 65]
    assert MIXED.logit_rows().tolist() == [0, 6, 7, 8]


def test_the_head_never_runs_on_nothing() -> None:
    assert PagedPass((Part(past=0, rows=5, table=[0], logit_rows=0),)).logit_rows().tolist() == [4]


def test_each_part_gets_its_rows() -> None:
    hidden = np.arange(9, dtype=np.float32)[:, None]
    assert [rows[:, 0].tolist() for rows in MIXED.split(hidden, logits=False)] == [
        [0],
        [1, 2, 3, 4, 5],
        [6, 7, 8],
    ]
    logits = np.arange(4, dtype=np.float32)[:, None]
    assert [rows[:, 0].tolist() for rows in MIXED.split(logits, logits=True)] == [[0], [], [1, 2, 3]]
