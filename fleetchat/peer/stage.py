"""What one stage does with one batch of one chain. No sockets, no threads.

The rules of the design, section 4: a fault of one slice fails that slice alone, later stages pass it
on, and there is exactly one RESULT for each FORWARD, also when no slice was computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.accept import verify
from fleetchat.engine.interface import EngineSlice, SliceOutput, StageEngine
from fleetchat.ids import ChainId, SessionId, SessionKey
from fleetchat.peer.history import TokenHistory
from fleetchat.peer.queue import QueuedBatch
from fleetchat.peer.sessions import ChainSessions, fault_of
from fleetchat.wire.frames import (
    FaultCode,
    Forward,
    InBand,
    Result,
    ResultStatus,
    SessionStats,
    Slice,
    SliceResult,
    SliceStatus,
    StageTiming,
    WireDtype,
)

_FAULT_CODES = frozenset(code.value for code in FaultCode)
# From here on a number becomes infinite: half-way between the largest one of f16 and what would follow it.
_TOO_LARGE = {WireDtype.F16: 65_520.0, WireDtype.F32: math.inf}


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What OPEN and READY settled for one chain on one stage."""

    chain: ChainId
    is_last: bool
    hidden: int
    vocabulary: int
    wire_dtype: WireDtype
    cells: int  # granted to this chain


@dataclass(slots=True, eq=False)
class _Work:
    """One slice on its way through this stage. `hidden` are its rows as they came.

    `length` is the session's before it was run, `cells` are (live, dead) after it; None when it was not.
    """

    slice: Slice
    key: SessionKey
    hidden: NDArray[np.floating] | None
    status: SliceStatus
    fault: tuple[str, str] = ("", "")
    kept: tuple[int, int] = (0, 0)  # its rows in the outgoing array
    accepted: int = 0
    token: int = 0
    length: int = 0
    cells: tuple[int, int] | None = None

    def fail(self, code: str, text: str) -> None:
        self.status = SliceStatus.FAILED
        self.fault = (str(code) if code in _FAULT_CODES else FaultCode.EXCEPTION.value, text)


class StageWorker:
    """One chain on one stage. All calls come from the stage's inference thread.

    After a verify with rejected drafts nothing is truncated here: the next slice says what to undo.
    """

    def __init__(
        self, engine: StageEngine, plan: StagePlan, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._clock = clock
        self._together = max(1, engine.traits.sessions_per_batch)  # slices of one pass
        # Cells shared after a FORK would be counted twice here: such an engine counts by itself.
        self._counts_cells = not engine.traits.can_fork
        self._too_large = _TOO_LARGE[plan.wire_dtype]
        self._history = TokenHistory()
        self._sessions = ChainSessions(engine, plan.chain, self._history, keeps_history=plan.is_last)
        self.batches = 0

    def forward(self, batch: QueuedBatch) -> Forward | Result:
        """Carry out one batch: the FORWARD for the next stage, or on the last one the RESULT."""
        started = self._clock()
        frame = batch.frame
        works, rows = _works(self._plan.chain, frame, batch.skipped)
        out = None if self._plan.is_last else np.empty((rows, self._plan.hidden), self._plan.wire_dtype.numpy)
        live = [work for work in works if work.status is SliceStatus.OK]
        # No session is twice in a batch, the frame saw to it.
        for start in range(0, len(live), self._together):
            self._run_group(live[start : start + self._together], out)
        self.batches += 1
        timing = StageTiming(
            queue_us=_microseconds(started - batch.arrived),
            compute_us=_microseconds(self._clock() - started),
            received_bytes=batch.received_bytes,
            cells=tuple([work.cells or self._sessions.note(work.slice.session) for work in works]),
        )
        timings = (*frame.timings, timing)
        if out is None:
            return Result(frame.epoch, frame.sequence, tuple(map(_result, works)), timings)
        slices = tuple(map(_passed_on, works))
        return Forward(frame.epoch, frame.sequence, slices, _kept_rows(works, out), timings)

    def in_band(self, frame: InBand) -> None:
        """Carry out CANCEL, CLOSE, COMPACT or FORK. What fails here fails the session's next slice."""
        self._sessions.carry_out(frame)

    @property
    def compacting(self) -> bool:
        """Whether `compaction_step` has something to do."""
        return self._sessions.compacting

    def compaction_step(self) -> None:
        """One bounded step of one session, between two batches."""
        self._sessions.compaction_step()

    def free(self) -> None:
        """Give back the cells of all sessions."""
        self._sessions.free()

    def statistics(self) -> tuple[SessionStats, ...]:
        """As of the last batch or order of each session. May be called from another thread."""
        return self._sessions.statistics()

    def _run_group(self, group: list[_Work], out: NDArray[np.floating] | None) -> None:
        ready = [work for work in group if self._admit(work)]
        if ready:
            self._run(ready, out)

    def _run(self, works: list[_Work], out: NDArray[np.floating] | None) -> None:
        try:
            outputs = self._engine.run([self._engine_slice(work) for work in works])
            if len(outputs) != len(works):
                raise RuntimeError(f"the engine gave {len(outputs)} outputs for {len(works)} slices")
        except Exception as error:  # an engine may raise anything: it must not take the chain down
            self._after_exception(works, error, out)
            return
        for work, output in zip(works, outputs, strict=True):
            self._take_output(work, output, out)
            work.cells = self._sessions.note(work.slice.session)

    def _after_exception(
        self, works: list[_Work], error: Exception, out: NDArray[np.floating] | None
    ) -> None:
        """Find the slice to blame: those that the engine has not begun to append run again, one by one."""
        for work in works:
            not_appended = work.slice.first <= self._engine.length(work.key) <= work.length
            if len(works) > 1 and not_appended:
                self._run([work], out)
            else:
                work.fail(*fault_of(error))

    def _admit(self, work: _Work) -> bool:
        """Check a slice against the session's state; a slice that does not fit has failed."""
        session = work.slice.session
        self._sessions.finish_compaction(session)
        work.length = self._engine.length(work.key)
        fault = self._sessions.broken(session) or self._misfit(work) or self._sessions.refusal(session)
        if fault is not None:
            work.fail(*fault)
        return fault is None

    def _misfit(self, work: _Work) -> tuple[str, str] | None:
        slice_, length = work.slice, work.length
        if slice_.first > length:
            return FaultCode.GAP, f"first row at {slice_.first}, but the stage holds {length} positions"
        if slice_.rollback != length - slice_.first:
            expected = length - slice_.first
            return FaultCode.DESYNC, f"rollback of {slice_.rollback}, but the stage would undo {expected}"
        if self._counts_cells and self._sessions.cells_used + slice_.rows > self._plan.cells:
            used, granted = self._sessions.cells_used, self._plan.cells
            return FaultCode.OVERFLOW, f"{slice_.rows} rows on top of {used} cells, {granted} are granted"
        return None

    def _engine_slice(self, work: _Work) -> EngineSlice:
        slice_ = work.slice
        wanted = slice_.drafts + 1 if self._plan.is_last and slice_.draw is not None else 0
        return EngineSlice(work.key, slice_.first, slice_.token_ids, work.hidden, wanted)

    def _take_output(self, work: _Work, output: SliceOutput, out: NDArray[np.floating] | None) -> None:
        if output.fault is not None:
            work.fail(*output.fault)
        elif out is None:
            self._take_logits(work, output.rows)
        else:
            self._take_hidden(work, output.rows, out)

    def _take_hidden(self, work: _Work, rows: NDArray[np.float32], out: NDArray[np.floating]) -> None:
        """Copy at once: the next `run` may overwrite the engine's rows."""
        if rows.shape != (work.slice.rows, self._plan.hidden):
            work.fail(FaultCode.EXCEPTION, f"the engine gave rows of shape {rows.shape}")
            return
        # A NaN is the place of both extremes. `max` and `isfinite(…).all()` run Python code of numpy's and
        # take three times as long as these methods of the array.
        smallest, largest = rows.item(rows.argmin()), rows.item(rows.argmax())
        if not -self._too_large < smallest <= largest < self._too_large:
            dtype = self._plan.wire_dtype.value
            work.fail(FaultCode.NON_FINITE, f"a hidden row is not finite, or too large for {dtype}")
            return
        start, stop = work.kept
        out[start:stop] = rows

    def _take_logits(self, work: _Work, logits: NDArray[np.float32]) -> None:
        slice_ = work.slice
        self._history.write(slice_.session, slice_.first, slice_.token_ids)
        if slice_.draw is None:
            return
        if logits.shape != (slice_.drafts + 1, self._plan.vocabulary):
            work.fail(FaultCode.EXCEPTION, f"the engine gave logits of shape {logits.shape}")
        else:
            try:
                ids = self._history.read(slice_.session, 0, slice_.first + slice_.rows)
                work.accepted, work.token = verify(slice_, logits, ids)
            except Exception as error:  # settings that cannot be drawn with fail this slice only
                work.fail(*fault_of(error))


def _works(chain: ChainId, frame: Forward, skipped: set[SessionId]) -> tuple[list[_Work], int]:
    """Each slice with its hidden rows, and how many rows are to be run.

    Every OK slice of the frame brought some.
    """
    works = []
    came = kept = 0
    for slice_ in frame.slices:
        rows, status, session, hidden = slice_.rows, slice_.status, slice_.session, None
        if status is SliceStatus.OK and frame.hidden is not None:
            hidden = frame.hidden[came : came + rows]
            came += rows
        if status is SliceStatus.OK and session in skipped:
            status = SliceStatus.SKIPPED
        fault = (slice_.fault_code, slice_.fault_text)
        work = _Work(slice_, SessionKey(chain, session), hidden, status, fault)
        if status is SliceStatus.OK:
            work.kept = (kept, kept + rows)
            kept += rows
        works.append(work)
    return works, kept


def _kept_rows(works: list[_Work], out: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows of the slices that are still OK, in one piece."""
    kept, count = [], 0
    for work in works:
        if work.status is SliceStatus.OK:
            kept.append(work.kept)
            count += work.slice.rows
    if count == len(out):
        return out
    return np.concatenate([out[start:stop] for start, stop in kept]) if kept else out[:0]


def _passed_on(work: _Work) -> Slice:
    if work.status is work.slice.status:
        return work.slice
    return replace(work.slice, status=work.status, fault_code=work.fault[0], fault_text=work.fault[1])


def _result(work: _Work) -> SliceResult:
    session = work.slice.session
    if work.status is SliceStatus.SKIPPED:
        return SliceResult(session, ResultStatus.SKIPPED)
    if work.status is SliceStatus.FAILED:
        return SliceResult(session, ResultStatus.FAILED, 0, 0, *work.fault)
    if work.slice.draw is None:
        return SliceResult(session, ResultStatus.NO_DRAW)
    return SliceResult(session, ResultStatus.DRAWN, work.accepted, work.token)


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
