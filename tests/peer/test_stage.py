from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import EngineSlice, SliceOutput
from fleetchat.errors import SliceFailed
from fleetchat.ids import BatchSequence, Epoch, SessionId, SessionKey
from fleetchat.peer.stage import StagePlan, StageWorker
from fleetchat.wire.frames import (
    Cancel,
    Close,
    Draw,
    Forward,
    Result,
    ResultStatus,
    SliceStatus,
    StageTiming,
    WireDtype,
)
from tests.fakes.engine import (
    FAKE_HIDDEN,
    FAKE_VOCABULARY,
    FakeEngine,
    Mischief,
    by_session,
    encoded,
)
from tests.peer.builders import CHAIN, batch, piece, queued


@dataclass
class Stage:
    """A worker on a fake engine, and what to feed it with."""

    engine: FakeEngine
    worker: StageWorker
    sequence: int = 0
    clock: Iterator[float] = field(default_factory=lambda: iter(()))

    def forward(self, *slices: object, skipped: Sequence[int] = (), **settings: object) -> Forward | Result:
        frame = batch(*slices, sequence=self.sequence)  # type: ignore[arg-type]
        if self.engine.stage:
            rows = [
                encoded(self.engine.stage - 1, item.session, item.first, item.token_ids.tolist())
                for item in frame.slices
                if item.status is SliceStatus.OK
            ]
            hidden = np.concatenate(rows) if rows else np.zeros((0, FAKE_HIDDEN))
            frame = Forward(frame.epoch, frame.sequence, frame.slices, hidden.astype(np.float16))
        self.sequence += 1
        return self.worker.forward(queued(frame, skipped=skipped))

    def result(self, *slices: object, skipped: Sequence[int] = ()) -> Result:
        outgoing = self.forward(*slices, skipped=skipped)
        assert isinstance(outgoing, Result)
        return outgoing

    def length(self, session: int) -> int:
        return self.engine.length(SessionKey(CHAIN, SessionId(session)))


def stage(
    index: int = 0,
    stages: int = 1,
    *,
    engine: FakeEngine | None = None,
    wire_dtype: WireDtype = WireDtype.F16,
    cells: int = 1000,
    clock: Sequence[float] = (),
    **settings: object,
) -> Stage:
    engine = engine or FakeEngine(index, stages, **settings)  # type: ignore[arg-type]
    plan = StagePlan(CHAIN, index == stages - 1, FAKE_HIDDEN, FAKE_VOCABULARY, wire_dtype, cells)
    ticks = iter(clock)
    worker = StageWorker(engine, plan, clock=lambda: next(ticks, 0.0))
    return Stage(engine, worker)


def statuses(result: Result) -> list[ResultStatus]:
    return [item.status for item in result.results]


def test_the_last_stage_draws_the_token_behind_the_last_row() -> None:
    drawn = stage().result(piece(1, 0, [5, 6, 7]))
    assert drawn.results[0].status is ResultStatus.DRAWN
    assert (drawn.results[0].accepted, drawn.results[0].token) == (0, by_session(1, 3))
    assert (drawn.epoch, drawn.sequence) == (1, 0)


def test_a_slice_without_draw_fills_the_cache_only() -> None:
    served = stage()
    result = served.result(piece(1, 0, [5, 6, 7], draw=None))
    assert statuses(result) == [ResultStatus.NO_DRAW]
    assert served.length(1) == 3


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_drafts_are_accepted_up_to_the_first_wrong_one(right: int) -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    drafts = [by_session(1, 4 + index) if index < right else 0 for index in range(3)]
    result = served.result(piece(1, 3, [by_session(1, 3), *drafts], drafts=3))
    assert (result.results[0].accepted, result.results[0].token) == (right, by_session(1, 4 + right))
    assert served.length(1) == 7, "rejected rows stay until the next slice says what to undo"


def test_the_next_slice_undoes_what_was_rejected() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    served.result(piece(1, 3, [by_session(1, 3), 0, 0], drafts=2))
    result = served.result(piece(1, 4, [by_session(1, 4)], rollback=2))
    assert result.results[0].token == by_session(1, 5)
    assert result.timings[0].cells == ((5, 2),)


def test_a_first_stage_sends_rows_tokens_and_settings_on() -> None:
    served = stage(0, 2)
    slices = piece(1, 0, [5, 6]), piece(2, 0, [7], draw=None)
    outgoing = served.forward(*slices)
    assert isinstance(outgoing, Forward)
    assert outgoing.slices == slices, "untouched slices are the same objects"
    assert outgoing.hidden is not None
    assert outgoing.hidden.dtype == np.float16
    assert outgoing.hidden.flags.c_contiguous
    expected = np.concatenate([encoded(0, 1, 0, [5, 6]), encoded(0, 2, 0, [7])])
    np.testing.assert_array_equal(outgoing.hidden, expected)


def test_rows_are_f32_when_the_chain_says_so() -> None:
    outgoing = stage(0, 2, wire_dtype=WireDtype.F32).forward(piece(1, 0, [5]))
    assert isinstance(outgoing, Forward)
    assert outgoing.hidden is not None
    assert outgoing.hidden.dtype == np.float32


def test_a_later_stage_takes_the_rows_of_each_slice() -> None:
    served = stage(1, 2, sessions_per_batch=2)
    result = served.result(piece(1, 0, [5, 6]), piece(2, 0, [7]), piece(3, 0, [8, 9]))
    assert [item.token for item in result.results] == [by_session(1, 2), by_session(2, 1), by_session(3, 2)]


def test_a_gap_and_a_desync_fail_their_slice_alone() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6]), piece(2, 0, [5, 6]), piece(3, 0, [5, 6]))
    result = served.result(piece(1, 3, [7]), piece(2, 1, [7]), piece(3, 2, [7]))
    assert statuses(result) == [ResultStatus.FAILED, ResultStatus.FAILED, ResultStatus.DRAWN]
    gap, desync, fine = result.results
    assert (gap.fault_code, gap.fault_text) == ("gap", "first row at 3, but the stage holds 2 positions")
    assert (desync.fault_code, desync.fault_text) == ("desync", "rollback of 0, but the stage would undo 1")
    assert fine.token == by_session(3, 3)
    assert (served.length(1), served.length(2)) == (2, 2), "a slice that does not fit changes nothing"


def test_failed_and_skipped_slices_are_passed_on_without_rows() -> None:
    served = stage(1, 3)
    failed = piece(1, 0, [5], status=SliceStatus.FAILED, fault=("gap", "no"))
    skipped = piece(2, 0, [5], status=SliceStatus.SKIPPED)
    outgoing = served.forward(failed, skipped, piece(3, 0, [5]))
    assert isinstance(outgoing, Forward)
    assert outgoing.slices[:2] == (failed, skipped)
    np.testing.assert_array_equal(outgoing.hidden, encoded(1, 3, 0, [5]))
    assert served.length(1) == served.length(2) == 0


def test_a_batch_of_skipped_slices_still_has_one_result() -> None:
    result = stage(1, 2).result(piece(1, 0, [5], status=SliceStatus.SKIPPED), piece(2, 0, [5]), skipped=[2])
    assert statuses(result) == [ResultStatus.SKIPPED, ResultStatus.SKIPPED]
    assert result.timings[0].cells == ((0, 0), (0, 0))


def test_a_batch_of_skipped_slices_is_sent_on_with_no_row() -> None:
    outgoing = stage(0, 2).forward(piece(1, 0, [5]), skipped=[1])
    assert isinstance(outgoing, Forward)
    assert outgoing.slices[0].status is SliceStatus.SKIPPED
    assert outgoing.hidden is not None
    assert outgoing.hidden.shape == (0, FAKE_HIDDEN)


def test_a_cancelled_session_does_not_shift_the_rows_of_the_others() -> None:
    served = stage(1, 3)
    outgoing = served.forward(piece(1, 0, [5, 6]), piece(2, 0, [7, 8]), skipped=[1])
    assert isinstance(outgoing, Forward)
    np.testing.assert_array_equal(outgoing.hidden, encoded(1, 2, 0, [7, 8]))
    assert (served.length(1), served.length(2)) == (0, 2)


def test_an_engine_that_raises_fails_one_slice() -> None:
    served = stage(mischief=Mischief(crashes={0: RuntimeError("no memory")}))
    result = served.result(piece(1, 0, [5]), piece(2, 0, [5]))
    assert statuses(result) == [ResultStatus.FAILED, ResultStatus.DRAWN]
    assert result.results[0].fault_code == "exception"
    assert result.results[0].fault_text == "RuntimeError: no memory"


@pytest.mark.parametrize(
    ("error", "code"), [(SliceFailed("overflow", "full"), "overflow"), (SliceFailed("odd", "x"), "exception")]
)
def test_the_code_of_an_engines_failure_is_one_that_can_travel(error: SliceFailed, code: str) -> None:
    result = stage(mischief=Mischief(crashes={0: error})).result(piece(1, 0, [5]))
    assert result.results[0].fault_code == code


def test_in_a_shared_pass_only_the_slice_to_blame_fails() -> None:
    crashes = {0: RuntimeError("all together"), 3: RuntimeError("the third alone")}
    served = stage(sessions_per_batch=3, mischief=Mischief(crashes=crashes))
    result = served.result(piece(1, 0, [5]), piece(2, 0, [5]), piece(3, 0, [5]))
    assert statuses(result) == [ResultStatus.DRAWN, ResultStatus.DRAWN, ResultStatus.FAILED]
    assert result.results[2].fault_text == "RuntimeError: the third alone"
    assert served.length(3) == 0


def test_a_slice_that_was_appended_before_its_pass_broke_is_not_run_again() -> None:
    served = stage(sessions_per_batch=2, mischief=Mischief(crashes={1: RuntimeError("x")}))
    result = served.result(piece(1, 0, [5]), piece(2, 0, [5]))
    assert statuses(result) == [ResultStatus.FAILED, ResultStatus.DRAWN]
    assert (served.length(1), served.length(2)) == (1, 1)


def test_a_fault_that_the_engine_names_travels() -> None:
    served = stage(0, 2, mischief=Mischief(faults={0: ("overflow", "no cells left")}))
    outgoing = served.forward(piece(1, 0, [5]), piece(2, 0, [6]))
    assert isinstance(outgoing, Forward)
    failed = outgoing.slices[0]
    assert (failed.status, failed.fault_code, failed.fault_text) == (
        SliceStatus.FAILED,
        "overflow",
        "no cells left",
    )
    np.testing.assert_array_equal(outgoing.hidden, encoded(0, 2, 0, [6]))


def test_logits_that_are_not_finite_fail_the_slice() -> None:
    served = stage(mischief=Mischief(non_finite=frozenset({0})))
    result = served.result(piece(1, 0, [5]), piece(2, 0, [5]))
    assert [item.fault_code for item in result.results] == ["non-finite", ""]


class RowsEngine(FakeEngine):
    """Gives prepared hidden rows."""

    rows: NDArray[np.float32]

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        super().run(slices)
        return [SliceOutput(self.rows) for _ in slices]


@pytest.mark.parametrize(
    ("value", "dtype", "status"),
    [
        (np.nan, WireDtype.F32, SliceStatus.FAILED),
        (np.inf, WireDtype.F32, SliceStatus.FAILED),
        (1e5, WireDtype.F16, SliceStatus.FAILED),
        (1e5, WireDtype.F32, SliceStatus.OK),
        (6e4, WireDtype.F16, SliceStatus.OK),
    ],
)
def test_hidden_rows_must_be_finite_on_the_wire(value: float, dtype: WireDtype, status: SliceStatus) -> None:
    engine = RowsEngine(0, 2)
    engine.rows = np.full((1, FAKE_HIDDEN), value, dtype=np.float32)
    outgoing = stage(0, 2, engine=engine, wire_dtype=dtype).forward(piece(1, 0, [5]))
    assert isinstance(outgoing, Forward)
    assert outgoing.slices[0].status is status
    assert outgoing.slices[0].fault_code == ("non-finite" if status is SliceStatus.FAILED else "")


@pytest.mark.parametrize(("index", "stages"), [(0, 2), (0, 1)])
def test_rows_of_a_wrong_shape_fail_the_slice(index: int, stages: int) -> None:
    engine = RowsEngine(index, stages)
    engine.rows = np.zeros((0, 0), dtype=np.float32)
    outgoing = stage(index, stages, engine=engine).forward(piece(1, 0, [5]))
    item = outgoing.results[0] if isinstance(outgoing, Result) else outgoing.slices[0]
    assert item.fault_code == "exception"
    assert "shape (0, 0)" in item.fault_text


def test_each_stage_appends_what_it_took() -> None:
    served = stage(1, 2, clock=[2.0, 2.5])
    earlier = StageTiming(1, 2, 3, ((9, 9),))
    hidden = encoded(0, 1, 0, [5]).astype(np.float16)
    frame = Forward(Epoch(1), BatchSequence(7), (piece(1, 0, [5]),), hidden, (earlier,))
    result = served.worker.forward(queued(frame, arrived=1.75))
    assert result.timings == (earlier, StageTiming(250_000, 500_000, 100, ((1, 0),)))


def test_a_chain_never_takes_more_cells_than_it_was_granted() -> None:
    served = stage(cells=5)
    served.result(piece(1, 0, [5, 6]), piece(2, 0, [5, 6]))
    result = served.result(piece(1, 2, [7]), piece(2, 2, [7]))
    assert statuses(result) == [ResultStatus.DRAWN, ResultStatus.FAILED]
    assert result.results[1].fault_text == "1 rows on top of 5 cells, 5 are granted"
    served.worker.in_band(Close(Epoch(1), SessionId(1)))
    assert statuses(served.result(piece(2, 2, [7]))) == [ResultStatus.DRAWN]


def test_the_penalty_sees_the_ids_of_this_reply_and_of_the_slice() -> None:
    served = stage()
    best = by_session(1, 3)
    draw = Draw(temperature=0.0, top_p=1.0, top_k=0, penalty=2.0, seed=1, reply_start=2)
    penalised = served.result(piece(1, 0, [5, 6, best], draw=draw))
    assert penalised.results[0].token == (best + 1) % FAKE_VOCABULARY, "30 / 2 is below 20"
    other = stage().result(piece(1, 0, [best, 6, 7], draw=draw))
    assert other.results[0].token == best, "position 0 is before the reply"


def test_two_chains_with_the_same_session_numbers_do_not_meet() -> None:
    engine = FakeEngine()
    mine = stage(engine=engine)
    plan = StagePlan(type(CHAIN)("d" * 32), True, FAKE_HIDDEN, FAKE_VOCABULARY, WireDtype.F16, 1000)
    theirs = StageWorker(engine, plan)
    mine.result(piece(1, 0, [5, 6, 7]))
    result = theirs.forward(queued(batch(piece(1, 0, [8]))))
    assert isinstance(result, Result)
    assert result.results[0].token == by_session(1, 1)
    theirs.free()
    assert mine.length(1) == 3
    assert mine.result(piece(1, 3, [8])).results[0].token == by_session(1, 4)


def test_statistics_are_those_of_the_chain() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    served.worker.in_band(Cancel(Epoch(1), SessionId(1), 1))
    (statistics,) = served.worker.statistics()
    assert (statistics.session, statistics.length, statistics.live, statistics.dead) == (1, 1, 1, 2)
    assert served.worker.batches == 1
