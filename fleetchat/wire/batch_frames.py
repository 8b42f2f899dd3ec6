"""Frames of data links: batches and the commands that travel in order with them.

A decode step builds a dozen of these values, on processors whose caches the weights have just gone
through: what costs is how much different code runs. So constructors accept the frequent value at one glance;
whatever that does not accept is checked rule by rule, and refused with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetchat.ids import BatchSequence, Epoch, SessionId
from fleetchat.wire.checks import (
    MAX_FAULT_TEXT,
    MAX_ROWS,
    MAX_SLICES,
    MAX_STAGES,
    U32,
    U64,
    clean_field,
    require,
    require_number,
    require_whole,
)
from fleetchat.wire.kinds import FaultCode, ResultStatus, SliceStatus

_INT32 = np.dtype("<i4")
_FAULT_CODES = frozenset(code.value for code in FaultCode)
_FEW_ROWS = 32  # numpy's reduction costs ten times the rest for the few rows of a decode step


@dataclass(frozen=True, slots=True)
class Draw:
    """How the last stage draws a token. See `engine.sampling`."""

    temperature: float  # 0 = arg max
    top_p: float  # 1 = off
    top_k: int  # 0 = off
    penalty: float  # repetition penalty, 1 = off
    seed: int  # u64
    reply_start: int  # logical position of the reply's first token

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, 0.0, 100.0)
        require_number("top_p", self.top_p, 0.0, 1.0)
        require(self.top_p > 0, "top_p must be above 0")
        require_whole("top_k", self.top_k)
        require_number("penalty", self.penalty, 0.01, 100.0)
        require_whole("seed", self.seed, 0, U64)
        require_whole("reply_start", self.reply_start)


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Consecutive rows of one session, on their way through the chain.

    `token_ids` is int32 [rows], rows >= 1; the last `drafts` of them are drafts (drafts < rows).
    `rollback` must equal the stage's length - `first`. A slice without `draw` fills the cache only.
    """

    session: SessionId
    first: int
    rollback: int
    token_ids: NDArray[np.int32]
    drafts: int = 0
    draw: Draw | None = None
    status: SliceStatus = SliceStatus.OK
    fault_code: str = ""
    fault_text: str = ""

    @property
    def rows(self) -> int:
        return len(self.token_ids)

    def __post_init__(self) -> None:
        ids, drafts = self.token_ids, self.drafts
        few = type(ids) is np.ndarray and ids.dtype == _INT32 and ids.ndim == 1 and len(ids) <= _FEW_ROWS
        if not (
            few
            and type(self.session) is type(self.first) is type(self.rollback) is type(drafts) is int
            and 0 <= self.session <= U32
            and 0 <= self.first <= U32 - len(ids)
            and 0 <= self.rollback <= U32
            and 0 <= drafts < len(ids)
            and min(ids.tolist()) >= 0
            and (self.draw is not None or not drafts)
            and self.status is SliceStatus.OK
            and not self.fault_code
            and not self.fault_text
        ):
            self._check()

    def _check(self) -> None:
        ids = self.token_ids
        require_whole("session", self.session)
        require_whole("rollback", self.rollback)
        if not (isinstance(ids, np.ndarray) and ids.dtype == _INT32 and ids.ndim == 1):
            require(False, "token_ids must be an int32 array of one dimension")
        rows = len(ids)
        require_whole("rows", rows, 1, MAX_ROWS)
        require_whole("first", self.first, 0, U32 - rows)
        require(int(ids.min()) >= 0, "token ids must not be negative")
        require_whole("drafts", self.drafts, 0, rows - 1)
        require(self.draw is not None or not self.drafts, "a slice with drafts must draw")
        require(isinstance(self.status, SliceStatus), "status must be a SliceStatus")
        _check_fault(self, self.status is SliceStatus.FAILED)


@dataclass(frozen=True, slots=True)
class StageTiming:
    """What one stage says of one batch. `cells` has (live, dead) for each slice, in order."""

    queue_us: int
    compute_us: int
    received_bytes: int
    cells: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        queue, compute, received = self.queue_us, self.compute_us, self.received_bytes
        whole = type(queue) is type(compute) is type(received) is int
        if not (whole and 0 <= queue <= U64 and 0 <= compute <= U64 and 0 <= received <= U64):
            require_whole("queue_us", queue, 0, U64)
            require_whole("compute_us", compute, 0, U64)
            require_whole("received_bytes", received, 0, U64)
        for live, dead in self.cells:  # inline: one entry a slice and stage in every batch
            if not (type(live) is type(dead) is int and 0 <= live <= U32 and 0 <= dead <= U32):
                require(False, "cells must be pairs of whole numbers")


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """A batch on one leg.

    `hidden` is [sum of rows of the slices with status OK, width] in the wire dtype, in slice order;
    None on the leg into stage 0. `timings` has one entry a stage passed so far.
    """

    epoch: Epoch
    sequence: BatchSequence
    slices: tuple[Slice, ...]
    hidden: NDArray[np.floating] | None = None
    timings: tuple[StageTiming, ...] = ()

    def __post_init__(self) -> None:
        _check_batch(self.epoch, self.sequence, self.slices, self.timings)
        if len(self.slices) > 1:
            sessions = {piece.session for piece in self.slices}
            require(len(sessions) == len(self.slices), "a session must not be twice in one batch")
        if self.hidden is not None:
            rows = self.live_rows
            if not (isinstance(self.hidden, np.ndarray) and self.hidden.ndim == 2):
                require(False, "hidden must be an array of two dimensions")
            if self.hidden.shape[0] != rows:
                require(False, f"hidden must have {rows} rows, one for each row of a slice with status OK")

    @property
    def live_rows(self) -> int:
        """Rows of the slices with status OK: the rows of `hidden`."""
        rows = 0
        for piece in self.slices:
            if piece.status is SliceStatus.OK:
                rows += len(piece.token_ids)
        return rows


@dataclass(frozen=True, slots=True)
class SliceResult:
    """`token` is the one drawn after `accepted` accepted drafts; both 0 unless DRAWN."""

    session: SessionId
    status: ResultStatus
    accepted: int = 0
    token: int = 0
    fault_code: str = ""
    fault_text: str = ""

    def __post_init__(self) -> None:
        session, accepted, token = self.session, self.accepted, self.token
        if not (
            self.status is ResultStatus.DRAWN
            and type(session) is type(accepted) is type(token) is int
            and 0 <= session <= U32
            and 0 <= accepted <= MAX_ROWS
            and 0 <= token < 2**31
            and not self.fault_code
            and not self.fault_text
        ):
            self._check()

    def _check(self) -> None:
        require_whole("session", self.session)
        require(isinstance(self.status, ResultStatus), "status must be a ResultStatus")
        if self.status is ResultStatus.DRAWN:
            require_whole("accepted", self.accepted, 0, MAX_ROWS)
            require_whole("token", self.token, 0, 2**31 - 1)
        else:
            require(self.accepted == 0 and self.token == 0, "only a drawn slice has a token")
        _check_fault(self, self.status is ResultStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Result:
    """Exactly one per FORWARD, last stage -> coordinator."""

    epoch: Epoch
    sequence: BatchSequence
    results: tuple[SliceResult, ...]
    timings: tuple[StageTiming, ...] = ()

    def __post_init__(self) -> None:
        _check_batch(self.epoch, self.sequence, self.results, self.timings)


@dataclass(frozen=True, slots=True)
class Cancel:
    """In-band. Skip queued slices of the session, then truncate it to `keep`."""

    epoch: Epoch
    session: SessionId
    keep: int

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)
        require_whole("keep", self.keep)


@dataclass(frozen=True, slots=True)
class Close:
    """In-band. Free the session's cells."""

    epoch: Epoch
    session: SessionId

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)


@dataclass(frozen=True, slots=True)
class Compact:
    """In-band, no answer."""

    epoch: Epoch
    session: SessionId

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)


@dataclass(frozen=True, slots=True)
class Fork:
    """In-band. `new` shares the first `length` cells of `source`."""

    epoch: Epoch
    new: SessionId
    source: SessionId
    length: int

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.new)
        require_whole("source", self.source)
        require(self.new != self.source, "a fork needs a new session")
        require_whole("length", self.length)


def _check_fault(piece: Slice | SliceResult, failed: bool) -> None:
    if not failed:
        require(not piece.fault_code and not piece.fault_text, "only a failed slice carries a fault")
        return
    require(piece.fault_code in _FAULT_CODES, "a failed slice needs a fault code of FaultCode")
    clean_field(piece, "fault_text", MAX_FAULT_TEXT)


def _check_in_band(epoch: int, session: int) -> None:
    require_whole("epoch", epoch, 1)
    require_whole("session", session)


def _check_batch(
    epoch: int, sequence: int, pieces: tuple[object, ...], timings: tuple[StageTiming, ...]
) -> None:
    if not (type(epoch) is type(sequence) is int and 1 <= epoch <= U32 and 0 <= sequence <= U32):
        require_whole("epoch", epoch, 1)
        require_whole("sequence", sequence)
    if not (isinstance(pieces, tuple) and 0 < len(pieces) <= MAX_SLICES):
        require(False, f"a batch is a tuple of 1 to {MAX_SLICES} slices")
    if not (isinstance(timings, tuple) and len(timings) <= MAX_STAGES):
        require(False, f"timings are a tuple of at most {MAX_STAGES}")
    for timing in timings:
        if len(timing.cells) != len(pieces):
            require(False, "a timing must have cells for every slice of the batch")
