"""What every stage engine must do, whatever it computes with.

A test module sets `EngineConformance` in a subclass and gives it a `chain` fixture: the engines of all
stages in order. Reference: trio's `testing/_check_streams.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import Cells, EngineSlice, StageEngine
from fleetchat.errors import SliceFailed
from fleetchat.ids import ChainId, SessionId, SessionKey

Chain = list[StageEngine]
SAME_MATHEMATICS = 1e-4  # design section 5
CHAIN = ChainId("c" * 32)


def session(number: int) -> SessionKey:
    return SessionKey(CHAIN, SessionId(number))


def feed(
    chain: Chain, key: SessionKey, first: int, token_ids: Sequence[int], logit_rows: int = 1
) -> NDArray[np.float32]:
    """Send one slice through all stages; returns a copy of the logits."""
    ids = np.array(token_ids, dtype=np.int32)
    hidden: NDArray[np.floating] | None = None
    for engine in chain:
        (output,) = engine.run([EngineSlice(key, first, ids, hidden, logit_rows)])
        assert output.fault is None, output.fault
        hidden = output.rows.copy()
    assert hidden is not None
    return np.asarray(hidden, dtype=np.float32)


def greedy(chain: Chain, key: SessionKey, first: int, prompt: Sequence[int], tokens: int) -> list[int]:
    """Feed the prompt, then decode greedily; the last token is not fed."""
    drawn: list[int] = []
    rows = list(prompt)
    for _ in range(tokens):
        logits = feed(chain, key, first, rows)
        first += len(rows)
        rows = [int(logits[-1].argmax())]
        drawn += rows
    return drawn


def compacted(engine: StageEngine, key: SessionKey) -> int:
    """Compact to the end; returns the number of steps."""
    steps = 1
    while not engine.compact(key):
        steps += 1
        assert steps < 1000, "compaction does not end"
    return steps


PROMPT = list(b"The quick brown fox jumps")
OTHER = list(b"Pack my box with five dozen")
PROMPTS = {1: PROMPT, 2: OTHER, 3: PROMPT[::-1]}


class EngineConformance:
    """Subclass it and provide `chain`, and `new_chain` for engines with few cells.

    What a rollback leaves behind is an engine's own matter: also take `DeadCellConformance` or
    `ForkingConformance`.
    """

    keeps_dead_cells = True

    def dead(self, cells: int) -> int:
        """What the engine reports when so many cells were hidden."""
        return cells if self.keeps_dead_cells else 0

    @pytest.fixture
    def chain(self) -> Chain:
        raise AssertionError("the subclass provides the chain")

    @pytest.fixture
    def new_chain(self) -> Callable[[int], Chain]:
        raise AssertionError("the subclass builds a chain with that many cells a stage")

    def test_unknown_session_is_empty(self, chain: Chain) -> None:
        for engine in chain:
            assert engine.length(session(1)) == 0
            assert engine.cells(session(1)) == Cells(0, 0)
            engine.forget(session(1))
            engine.truncate(session(1), 0)
            assert engine.compact(session(1))
            assert engine.sessions() == []

    def test_lengths_and_cells_follow_the_slices(self, chain: Chain) -> None:
        feed(chain, session(1), 0, PROMPT)
        feed(chain, session(1), len(PROMPT), [65, 66, 67], logit_rows=3)
        feed(chain, session(1), len(PROMPT) + 1, [68, 69])
        for engine in chain:
            assert engine.length(session(1)) == len(PROMPT) + 3
            assert engine.cells(session(1)) == Cells(len(PROMPT) + 3, self.dead(2))
            assert engine.sessions() == [session(1)]

    def test_rows_asked_for_are_the_rows_returned(self, chain: Chain) -> None:
        every = feed(chain, session(1), 0, PROMPT, logit_rows=len(PROMPT))
        assert len(every) == len(PROMPT)
        assert np.isfinite(every).all()
        last_two = feed(chain, session(2), 0, PROMPT, logit_rows=2)
        assert last_two.shape == (2, every.shape[1])
        none = feed(chain, session(3), 0, PROMPT, logit_rows=0)
        assert none.shape == (0, every.shape[1])

    def test_hidden_rows_are_one_a_token(self, chain: Chain) -> None:
        ids = np.array(PROMPT, dtype=np.int32)
        hidden: NDArray[np.floating] | None = None
        for engine in chain[:-1]:
            (output,) = engine.run([EngineSlice(session(1), 0, ids, hidden, 0)])
            assert output.rows.dtype == np.float32
            assert len(output.rows) == len(PROMPT)
            hidden = output.rows.copy()

    def test_rows_may_arrive_in_f16(self, chain: Chain) -> None:
        ids = np.array(PROMPT, dtype=np.int32)
        hidden: NDArray[np.floating] | None = None
        for engine in chain:
            (output,) = engine.run([EngineSlice(session(1), 0, ids, hidden, 1)])
            assert output.fault is None
            hidden = output.rows.astype(np.float16)

    def test_chunks_equal_one_piece(self, chain: Chain) -> None:
        whole = feed(chain, session(1), 0, PROMPT)
        feed(chain, session(2), 0, PROMPT[:10], logit_rows=0)
        feed(chain, session(2), 10, PROMPT[10:11], logit_rows=0)
        chunks = feed(chain, session(2), 11, PROMPT[11:])
        assert [engine.length(session(2)) for engine in chain] == [len(PROMPT)] * len(chain)
        self.assert_close(chunks, whole, chain)

    def assert_close(self, got: NDArray[np.float32], wanted: NDArray[np.float32], chain: Chain) -> None:
        """Same mathematics; rows of another session of a fake engine are other rows."""
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS

    def test_same_slices_same_logits(self, chain: Chain) -> None:
        first = feed(chain, session(1), 0, PROMPT, logit_rows=4)
        again = feed(chain, session(1), 0, PROMPT, logit_rows=4)
        assert np.array_equal(first, again)

    def test_rolled_back_and_other_tokens_equal_a_fresh_run(self, chain: Chain) -> None:
        key = session(1)
        wanted = feed(chain, key, 0, PROMPT + OTHER, logit_rows=len(OTHER))
        tokens = greedy(chain, key, len(PROMPT + OTHER), [32], 20)
        for engine in chain:
            engine.forget(key)
        feed(chain, key, 0, [*PROMPT, 1, 2, 3, 4, 5])
        feed(chain, key, len(PROMPT) + 2, [6, 7, 8, 9])
        got = feed(chain, key, len(PROMPT), OTHER, logit_rows=len(OTHER))
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS
        assert chain[0].cells(key) == Cells(len(PROMPT + OTHER), self.dead(9))
        assert greedy(chain, key, len(PROMPT + OTHER), [32], 20) == tokens

    def test_truncate_equals_a_smaller_first(self, chain: Chain) -> None:
        key = session(1)
        feed(chain, key, 0, PROMPT)
        for engine in chain:
            engine.truncate(key, 7)
            assert engine.cells(key) == Cells(7, self.dead(len(PROMPT) - 7))
            engine.truncate(key, 9)  # longer than the session: nothing to hide
            assert engine.length(key) == 7
        got = feed(chain, key, 7, OTHER)
        for engine in chain:
            engine.forget(key)
        wanted = feed(chain, key, 0, PROMPT[:7] + OTHER)
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS

    def test_back_to_the_beginning_leaves_no_dead_cells(self, chain: Chain) -> None:
        key = session(1)
        wanted = feed(chain, key, 0, OTHER)
        feed(chain, key, 0, PROMPT)
        got = feed(chain, key, 0, OTHER)
        assert [engine.cells(key) for engine in chain] == [Cells(len(OTHER), 0)] * len(chain)
        assert np.array_equal(got, wanted)

    def test_verify_rows_equal_single_decodes(self, chain: Chain) -> None:
        key = session(1)
        tokens = greedy(chain, key, 0, PROMPT, 6)
        singles = [feed(chain, key, len(PROMPT) + row, [token]) for row, token in enumerate(tokens)]
        together = feed(chain, key, len(PROMPT), tokens, logit_rows=len(tokens))
        assert np.abs(together - np.concatenate(singles)).max() <= SAME_MATHEMATICS

    def test_interleaved_sessions_are_independent(self, chain: Chain) -> None:
        alone = {number: greedy(chain, session(number), 0, prompt, 16) for number, prompt in PROMPTS.items()}
        for number in PROMPTS:
            for engine in chain:
                engine.forget(session(number))
        together: dict[int, list[int]] = {number: [] for number in PROMPTS}
        rows = {number: list(prompt) for number, prompt in PROMPTS.items()}
        firsts = dict.fromkeys(PROMPTS, 0)
        for step in range(16):
            for number in sorted(PROMPTS, reverse=step % 2 == 0):
                logits = feed(chain, session(number), firsts[number], rows[number])
                firsts[number] += len(rows[number])
                rows[number] = [int(logits[-1].argmax())]
                together[number] += rows[number]
        assert together == alone

    def test_forget_frees_the_cells(self, new_chain: Callable[[int], Chain]) -> None:
        chain = new_chain(64)
        for number in (1, 2):
            feed(chain, session(number), 0, PROMPT)
        for engine in chain:
            engine.forget(session(1))
            assert engine.length(session(1)) == 0
            assert engine.sessions() == [session(2)]
        feed(chain, session(3), 0, PROMPT)

    def test_no_cells_left_fails_the_slice_and_nothing_else(self, new_chain: Callable[[int], Chain]) -> None:
        chain = new_chain(64)
        feed(chain, session(1), 0, PROMPT)
        engine = chain[0]
        item = EngineSlice(session(2), 0, np.array(PROMPT + OTHER, dtype=np.int32), None, 1)
        (output,) = engine.run([item])
        assert output.fault is not None
        assert output.fault[0] == "overflow"
        assert "64" in output.fault[1]
        assert output.rows.size == 0
        assert engine.length(session(2)) == 0
        assert engine.length(session(1)) == len(PROMPT)
        feed(chain, session(1), len(PROMPT), [65])

    def test_an_overflow_leaves_the_length_as_it_was(self, new_chain: Callable[[int], Chain]) -> None:
        chain = new_chain(32)
        feed(chain, session(1), 0, PROMPT)
        (output,) = chain[0].run([EngineSlice(session(1), 15, np.array(OTHER, dtype=np.int32), None, 1)])
        assert output.fault is not None
        assert chain[0].cells(session(1)) == Cells(len(PROMPT), 0)


class DeadCellConformance(EngineConformance):
    """For engines that hide cells and copy the others together later."""

    def test_compaction_changes_the_cells_and_nothing_else(self, chain: Chain) -> None:
        key = session(1)
        self._with_holes(chain, key)
        wanted = feed(chain, key, 20, OTHER, logit_rows=len(OTHER))
        for engine in chain:
            engine.forget(key)
        self._with_holes(chain, key)
        for engine in chain:
            before = engine.cells(key)
            assert before.dead == 12
            compacted(engine, key)
            assert engine.cells(key) == Cells(before.live, 0)
        got = feed(chain, key, 20, OTHER, logit_rows=len(OTHER))
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS

    @staticmethod
    def _with_holes(chain: Chain, key: SessionKey) -> None:
        """20 live cells and 12 dead ones between them."""
        feed(chain, key, 0, PROMPT[:10])
        feed(chain, key, 6, PROMPT[6:16])
        feed(chain, key, 8, PROMPT[8:20])

    def test_compaction_is_done_in_steps_between_other_sessions_slices(self, chain: Chain) -> None:
        key, other = session(1), session(2)
        feed(chain, other, 0, OTHER)
        wanted = feed(chain, other, len(OTHER), [65, 66], logit_rows=2)
        self._with_holes(chain, key)
        engine = chain[0]
        cells = engine.cells(key)
        while not engine.compact(key):
            assert engine.cells(key) == cells
            got = feed(chain, other, len(OTHER), [65, 66], logit_rows=2)
            assert np.abs(got - wanted).max() <= SAME_MATHEMATICS
        assert engine.cells(key) == Cells(20, 0)

    def test_a_slice_of_the_session_finishes_its_compaction(self, chain: Chain) -> None:
        key = session(1)
        self._with_holes(chain, key)
        wanted = feed(chain, key, 20, OTHER)
        for engine in chain:
            engine.forget(key)
        self._with_holes(chain, key)
        for engine in chain:
            assert not engine.compact(key), "one step must not copy everything"
        got = feed(chain, key, 20, OTHER)
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS
        assert [engine.cells(key).dead for engine in chain] == [0] * len(chain)

    def test_a_truncation_finishes_the_compaction(self, chain: Chain) -> None:
        key = session(1)
        self._with_holes(chain, key)
        for engine in chain:
            engine.compact(key)
            engine.truncate(key, 18)
            assert engine.cells(key) == Cells(18, 2)
        got = feed(chain, key, 18, OTHER)
        for engine in chain:
            engine.forget(key)
        wanted = feed(chain, key, 0, PROMPT[:18] + OTHER)
        assert np.abs(got - wanted).max() <= SAME_MATHEMATICS

    def test_forgetting_in_the_middle_of_a_compaction(self, chain: Chain) -> None:
        key = session(1)
        wanted = feed(chain, key, 0, PROMPT)
        self._with_holes(chain, key)
        for engine in chain:
            engine.compact(key)
            engine.forget(key)
            assert engine.cells(key) == Cells(0, 0)
        assert np.array_equal(feed(chain, key, 0, PROMPT), wanted)

    def test_forking_is_refused_when_the_traits_say_so(self, chain: Chain) -> None:
        feed(chain, session(1), 0, PROMPT)
        for engine in chain:
            assert not engine.traits.can_fork
            with pytest.raises(SliceFailed) as caught:
                engine.fork(session(2), session(1), 5)
            assert caught.value.code == "unsupported"


class ForkingConformance(EngineConformance):
    """For engines that run many sessions in one pass, share cells, and leave no dead ones."""

    keeps_dead_cells = False

    def test_traits(self, chain: Chain) -> None:
        for engine in chain:
            assert engine.traits.can_fork
            assert engine.traits.sessions_per_batch >= 16
            assert engine.traits.cells % engine.traits.block_size == 0

    def test_there_is_nothing_to_compact(self, chain: Chain) -> None:
        feed(chain, session(1), 0, PROMPT)
        feed(chain, session(1), 5, OTHER)
        for engine in chain:
            assert engine.compact(session(1))
            assert not engine.compacting(session(1))

    @pytest.mark.parametrize("shared", [1, 5, 31, 32, 33, 64, 70])
    def test_a_fork_goes_on_like_its_source_and_neither_sees_the_other(
        self, chain: Chain, shared: int
    ) -> None:
        history = (PROMPT + OTHER) * 2
        wanted_other = alone(chain, [*history[:shared], *OTHER])
        wanted_source = alone(chain, [*history, *PROMPT])
        feed(chain, session(1), 0, history)
        for engine in chain:
            engine.fork(session(2), session(1), shared)
            assert engine.length(session(2)) == shared
        other = feed(chain, session(2), shared, OTHER)
        source = feed(chain, session(1), len(history), PROMPT)
        assert np.abs(other - wanted_other).max() <= SAME_MATHEMATICS
        assert np.abs(source - wanted_source).max() <= SAME_MATHEMATICS

    def test_a_source_that_goes_back_does_not_write_what_it_shares(self, chain: Chain) -> None:
        history = (PROMPT + OTHER) * 2
        wanted = alone(chain, [*history[:60], 65])
        feed(chain, session(1), 0, history)
        for engine in chain:
            engine.fork(session(2), session(1), 60)
        feed(chain, session(1), 40, OTHER)
        assert np.abs(feed(chain, session(2), 60, [65]) - wanted).max() <= SAME_MATHEMATICS

    def test_a_fork_outlives_its_source(self, chain: Chain) -> None:
        wanted = alone(chain, PROMPT + OTHER)
        feed(chain, session(1), 0, PROMPT)
        for engine in chain:
            engine.fork(session(2), session(1), len(PROMPT))
            engine.forget(session(1))
        feed(chain, session(3), 0, OTHER)
        assert np.abs(feed(chain, session(2), len(PROMPT), OTHER) - wanted).max() <= SAME_MATHEMATICS

    def test_forks_share_cells(self, new_chain: Callable[[int], Chain]) -> None:
        chain = new_chain(4 * 32)
        feed(chain, session(1), 0, [*PROMPT, *OTHER, *PROMPT])  # three blocks of four
        for number in (2, 3, 4):
            for engine in chain:
                engine.fork(session(number), session(1), 64)
        feed(chain, session(2), 64, [65])  # the fourth
        (output,) = chain[0].run([EngineSlice(session(3), 64, np.array([65], dtype=np.int32), None, 1)])
        assert output.fault is not None
        assert output.fault[0] == "overflow"
        assert chain[0].length(session(3)) == 64

    def test_slices_of_many_sessions_run_together(self, chain: Chain) -> None:
        """Decode, verify and prefill of any lengths in one pass equal the same slices one by one."""
        pieces: list[tuple[int, list[int], list[int], int]] = [
            (number, (PROMPT + OTHER)[: 3 * number], (OTHER * 3)[: 1 + number * number % 40], number % 3)
            for number in range(1, 17)
        ]
        wanted = []
        for number, history, rows, logit_rows in pieces:
            if history:
                feed(chain, session(number), 0, history)
            wanted.append(feed(chain, session(number), len(history), rows, min(logit_rows, len(rows))))
        slices = [
            EngineSlice(session(number), len(history), np.array(rows, np.int32), None, min(want, len(rows)))
            for number, history, rows, want in pieces
        ]
        for stage, engine in enumerate(chain):
            outputs = engine.run(slices)
            assert all(output.fault is None for output in outputs)
            if stage < len(chain) - 1:
                slices = [
                    dataclasses.replace(item, hidden=output.rows.copy())
                    for item, output in zip(slices, outputs, strict=True)
                ]
        for output, logits in zip(outputs, wanted, strict=True):
            assert output.rows.shape == logits.shape
            assert not len(logits) or np.abs(output.rows - logits).max() <= SAME_MATHEMATICS

    def test_a_slice_that_fails_does_not_spoil_the_others(self, new_chain: Callable[[int], Chain]) -> None:
        chain = new_chain(3 * 32)
        wanted = alone(chain, PROMPT)
        ids = np.array(PROMPT, dtype=np.int32)
        slices = [
            EngineSlice(session(1), 0, ids, None, 1),
            EngineSlice(session(2), 0, np.array(PROMPT * 4, dtype=np.int32), None, 1),  # too long
            EngineSlice(session(3), 0, np.array([-1], dtype=np.int32), None, 1),
            EngineSlice(session(4), 7, ids, None, 1),  # a gap
            EngineSlice(session(5), 0, ids, None, 1),
        ]
        outputs = chain[0].run(slices)
        assert [output.fault and output.fault[0] for output in outputs] == [
            None,
            "overflow",
            "exception",
            "gap",
            None,
        ]
        hidden = [outputs[0].rows.copy(), outputs[4].rows.copy()]
        for engine in chain[1:]:
            items = [
                EngineSlice(session(number), 0, ids, rows, 1)
                for number, rows in zip((1, 5), hidden, strict=True)
            ]
            hidden = [output.rows.copy() for output in engine.run(items)]
        assert all(np.abs(rows - wanted).max() <= SAME_MATHEMATICS for rows in hidden)
        assert sorted(key.session for key in chain[0].sessions()) == [1, 5]


def alone(chain: Chain, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Logits of the last row in a session of its own, which is forgotten again."""
    logits = feed(chain, session(99), 0, token_ids)
    for engine in chain:
        engine.forget(session(99))
    return logits
