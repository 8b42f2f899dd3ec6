"""A frame that can be built is a legal frame."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleetchat.errors import LocalProtocolError
from fleetchat.ids import Address, BatchSequence, Epoch, SessionId
from fleetchat.wire.frames import (
    MAX_FAULT_TEXT,
    MAX_SESSIONS_IN_STATS,
    MAX_TEXT,
    Cancel,
    Error,
    FaultCode,
    Fork,
    Forward,
    Goodbye,
    Ping,
    Progress,
    Result,
    ResultStatus,
    SessionStats,
    Slice,
    SliceResult,
    SliceStatus,
    StageTiming,
    Stats,
)
from tests.wire.samples import DRAW, EPOCH, FAILED, FILL, TIMING, VERIFY, forward, hidden, opened, slice_of


@pytest.mark.parametrize(
    "change",
    [
        {"chain": "xyz"},
        {"chain": "A" * 32},
        {"chain": 5},
        {"epoch": 0},
        {"epoch": True},
        {"epoch": 2**32},
        {"build_key": "0" * 63},
        {"stage": 3},
        {"stage": -1},
        {"stages": 0},
        {"stages": 257},
        {"first_layer": 8},
        {"vocabulary": 0},
        {"vocabulary": 2**31},
        {"hidden": 0},
        {"hidden": 4.0},
        {"wire_dtype": "f16"},
        {"precision": "slow"},
        {"engine": ["masked"]},
        {"next_address": None},
        {"next_address": Address("", 1)},
        {"next_address": Address("a b", 1)},
        {"next_address": Address("a" * 254, 1)},
        {"next_address": Address("host", 0)},
        {"next_address": Address("host", 65536)},
        {"cells_wanted": 0},
        {"max_rows": 0},
        {"max_slices": 1025},
        {"max_rows": 65536, "hidden": 65536},
    ],
)
def test_open_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(opened(1), **change)


def test_only_the_last_stage_has_no_next_address() -> None:
    with pytest.raises(LocalProtocolError, match="next address"):
        replace(opened(2), next_address=Address("host", 1))


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": 101.0},
        {"temperature": True},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_k": -1},
        {"top_k": 1.5},
        {"penalty": 0.0},
        {"seed": 2**64},
        {"reply_start": -1},
    ],
)
def test_draw_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(DRAW, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"session": -1},
        {"session": 2**32},
        {"first": -1},
        {"first": 2**32 - 3},
        {"rollback": -1},
        {"token_ids": np.zeros(0, np.int32)},
        {"token_ids": np.zeros(3, np.int64)},
        {"token_ids": np.zeros((3, 1), np.int32)},
        {"token_ids": [1, 2, 3]},
        {"token_ids": np.array([1, -1, 3], np.int32)},
        {"token_ids": np.full(100, -1, np.int32)},
        {"token_ids": np.zeros(65537, np.int32)},
        {"drafts": 3},
        {"drafts": -1},
        {"draw": None},
        {"status": 0},
        {"status": SliceStatus.FAILED},
        {"status": SliceStatus.FAILED, "fault_code": "tired"},
        {"fault_code": "gap"},
        {"fault_text": "first > length"},
    ],
)
def test_slice_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(VERIFY, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 0},
        {"sequence": 2**32},
        {"slices": ()},
        {"slices": [VERIFY]},
        {"slices": (VERIFY, slice_of(1, 4))},
        {"slices": tuple(slice_of(i, 1) for i in range(1025)), "hidden": None},
        {"hidden": hidden(3)},
        {"hidden": hidden(4).reshape(-1)},
        {"timings": (StageTiming(1, 1, 1, ((1, 0),)),)},
        {"timings": (TIMING,) * 257},
    ],
)
def test_forward_is_checked(change: dict[str, Any]) -> None:
    whole = forward(VERIFY, FILL, FAILED, rows=4, timings=(TIMING,))
    with pytest.raises(LocalProtocolError):
        replace(whole, **change)


def test_live_rows_counts_slices_that_are_ok() -> None:
    assert forward(VERIFY, FILL, FAILED).live_rows == 4


@pytest.mark.parametrize(
    "build",
    [
        lambda: SliceResult(SessionId(1), ResultStatus.NO_DRAW, 0, 5),
        lambda: SliceResult(SessionId(1), ResultStatus.SKIPPED, 1, 0),
        lambda: SliceResult(SessionId(1), ResultStatus.DRAWN, 0, -1),
        lambda: SliceResult(SessionId(1), ResultStatus.DRAWN, -1, 0),
        lambda: SliceResult(SessionId(1), ResultStatus.DRAWN, 0, 1, "gap"),
        lambda: SliceResult(SessionId(1), ResultStatus.FAILED),
        lambda: Result(Epoch(1), BatchSequence(1), ()),
        lambda: StageTiming(-1, 0, 0, ()),
        lambda: StageTiming(0, 0, 0, ((1, 2**32),)),
        lambda: StageTiming(0, 0, 0, ((True, 0),)),
        lambda: Cancel(Epoch(0), SessionId(1), 0),
        lambda: Cancel(EPOCH, SessionId(1), -1),
        lambda: Fork(EPOCH, SessionId(1), SessionId(1), 4),
        lambda: Ping(-1),
        lambda: Ping(2**64),
        lambda: Progress("x", 2, 1),
        lambda: Error("gap", "text"),  # type: ignore[arg-type]
        lambda: Goodbye(5),  # type: ignore[arg-type]
        lambda: Stats(
            (SessionStats(SessionId(1), 1, 1, 0),) * (MAX_SESSIONS_IN_STATS + 1), 0, 0, 0, 0, 0, 0, 0
        ),
    ],
)
def test_small_frames_are_checked(build: Any) -> None:
    with pytest.raises(LocalProtocolError):
        build()


def test_texts_for_people_are_cleaned_and_cut_so_that_reporting_never_fails() -> None:
    error = Error(FaultCode.ENGINE, "line 1\nline 2\x1b[31m\x9b\u2028end\ud800", "é" * MAX_TEXT)
    assert error.text == "line 1 line 2 [31m  end?"
    assert error.hint == "é" * (MAX_TEXT // 2)
    piece = Slice(
        SessionId(1),
        0,
        0,
        FILL.token_ids,
        status=SliceStatus.FAILED,
        fault_code="exception",
        fault_text="✂" * 999,
    )
    assert len(piece.fault_text.encode()) <= MAX_FAULT_TEXT
    assert set(piece.fault_text) == {"✂"}


def test_a_forward_without_hidden_rows_is_legal_on_the_first_leg() -> None:
    assert Forward(EPOCH, BatchSequence(0), (VERIFY,)).hidden is None
