"""Bodies of FORWARD and RESULT.

    FORWARD = count of timings, slice records, timings, zeros to 16, token ids of all slices,
              zeros to 16, hidden rows
    RESULT  = count of timings, result records, timings

A slice record is followed by a draw record when it draws and by a fault when it failed. The number of slices
is in the header. Whatever a count announces is compared with the limits before anything is made of it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.ids import BatchSequence, Epoch, SessionId
from fleetchat.wire.frames import (
    MAX_FAULT_TEXT,
    MAX_STAGES,
    Draw,
    Forward,
    Limits,
    Result,
    ResultStatus,
    Slice,
    SliceResult,
    SliceStatus,
    StageTiming,
    WireDtype,
)
from fleetchat.wire.header import Header
from fleetchat.wire.tensors import ALIGNMENT, hidden_buffer, hidden_view, padding, token_view

HAS_HIDDEN = 1  # flags of FORWARD
HIDDEN_IS_F16 = 2

_COUNT = struct.Struct("<I")
_SLICE = struct.Struct("<IIIIIBBH")  # session, first, rollback, rows, drafts, status, draws, zero
_DRAW = struct.Struct("<dddQII")  # temperature, top_p, penalty, seed, top_k, reply_start
_FAULT = struct.Struct("<HH")  # bytes of the code, bytes of the text
_RESULT = struct.Struct("<IIIBBH")  # session, accepted, token, status, zero, zero
_TIMING = struct.Struct("<QQQ")  # queue µs, compute µs, received bytes; (live, dead) of each slice follow
_TIMING_OF_ONE = struct.Struct("<QQQII")  # in a batch of one slice
_CELLS = 8  # bytes of (live, dead)
_NO_FAULT = ("", "")
_MAX_CODE = 32
_SLICE_STATUS = {status.value: status for status in SliceStatus}
_RESULT_STATUS = {status.value: status for status in ResultStatus}


def forward_flags(limits: Limits) -> int:
    """What the flags of every FORWARD on a link with these limits are."""
    if not limits.hidden:
        return 0
    return HAS_HIDDEN | (HIDDEN_IS_F16 if limits.wire_dtype is WireDtype.F16 else 0)


def largest_forward(rows: int, slices: int, hidden: int, dtype: WireDtype, stages: int) -> int:
    """Bytes of the largest legal FORWARD body."""
    records = slices * (_SLICE.size + _DRAW.size + _FAULT.size + _MAX_CODE + MAX_FAULT_TEXT)
    arrays = rows * 4 + rows * hidden * dtype.numpy.itemsize
    return _COUNT.size + records + largest_timings(stages, slices) + arrays + 2 * padding(1)


def largest_result(slices: int, stages: int) -> int:
    """Bytes of the largest legal RESULT body."""
    record = _RESULT.size + _FAULT.size + _MAX_CODE + MAX_FAULT_TEXT
    return _COUNT.size + slices * record + largest_timings(stages, slices)


def largest_timings(stages: int, slices: int) -> int:
    return stages * (_TIMING.size + slices * _CELLS)


def encode_forward(frame: Forward, limits: Limits) -> list[bytes | memoryview]:
    """Buffers of the body, the last one a view of `frame.hidden`. Raises LocalProtocolError past a limit."""
    slices, hidden = frame.slices, frame.hidden
    parts = [_COUNT.pack(len(frame.timings))]
    ids = []
    rows = 0
    for piece in slices:
        _append_slice(parts, piece)
        ids.append(piece.token_ids.tobytes())
        rows += len(piece.token_ids)
    if len(slices) > limits.max_slices or rows > limits.max_rows:
        raise LocalProtocolError(
            f"{len(slices)} slices of {rows} rows, this link carries "
            f"{limits.max_slices} slices of {limits.max_rows} rows"
        )
    if (hidden is not None) != (limits.hidden > 0):
        raise LocalProtocolError("hidden rows travel on every leg but the one into stage 0")
    _append_timings(parts, frame.timings)
    size = sum([len(part) for part in parts])
    parts.append(bytes(padding(size)))
    parts += ids
    if hidden is None:
        return [b"".join(parts)]
    parts.append(bytes(padding(rows * 4)))
    if not hidden.size:
        return [b"".join(parts)]
    return [b"".join(parts), hidden_buffer(hidden, limits.hidden, limits.wire_dtype)]


def decode_forward(header: Header, body: bytearray, limits: Limits) -> Forward:
    """The frame, with arrays that are views of `body`.

    Raises RemoteProtocolError, LocalProtocolError (from constructors), struct.error (too short).
    """
    if header.slices > limits.max_slices:
        raise RemoteProtocolError(f"{header.slices} slices, agreed were at most {limits.max_slices}")
    records, offset, rows, live = _parse_slices(body, header.slices, limits.max_rows)
    timings, offset = _parse_timings(body, offset, header.slices)
    offset = _skip_padding(body, offset)
    ids = token_view(body, offset, rows, limits.vocabulary)
    slices = _build_slices(records, ids)
    offset += rows * 4
    hidden = None
    if limits.hidden:
        offset = _skip_padding(body, offset)
        hidden = hidden_view(body, offset, live, limits.hidden, limits.wire_dtype)
    elif offset != len(body):
        raise RemoteProtocolError("bytes after the end of FORWARD")
    return Forward(Epoch(header.epoch), BatchSequence(header.sequence), slices, hidden, timings)


def encode_result(frame: Result, limits: Limits) -> list[bytes | memoryview]:
    """Buffers of the body. Raises LocalProtocolError past a limit."""
    if len(frame.results) > limits.max_slices:
        raise LocalProtocolError(f"{len(frame.results)} results, this link carries {limits.max_slices}")
    parts = [_COUNT.pack(len(frame.timings))]
    for result in frame.results:
        parts.append(_RESULT.pack(result.session, result.accepted, result.token, result.status, 0, 0))
        if result.status is ResultStatus.FAILED:
            _append_fault(parts, result.fault_code, result.fault_text)
    _append_timings(parts, frame.timings)
    return [b"".join(parts)]


def decode_result(header: Header, body: bytearray, limits: Limits) -> Result:
    """Raises RemoteProtocolError, LocalProtocolError (from constructors), struct.error (too short)."""
    if header.slices > limits.max_slices:
        raise RemoteProtocolError(f"{header.slices} results, agreed were at most {limits.max_slices}")
    results = []
    offset = _COUNT.size
    for _ in range(header.slices):
        session, accepted, token, status, reserved, more = _RESULT.unpack_from(body, offset)
        if reserved or more:
            raise RemoteProtocolError("reserved bytes of a result are not zero")
        offset += _RESULT.size
        known = _RESULT_STATUS.get(status)
        if known is None or (limits.vocabulary and token >= limits.vocabulary):
            raise RemoteProtocolError("a result has an unknown status or token")
        fault = _NO_FAULT
        if known is ResultStatus.FAILED:
            fault, offset = _parse_fault(body, offset)
        results.append(SliceResult(SessionId(session), known, accepted, token, *fault))
    timings, offset = _parse_timings(body, offset, header.slices)
    if offset != len(body):
        raise RemoteProtocolError("bytes after the end of RESULT")
    return Result(Epoch(header.epoch), BatchSequence(header.sequence), tuple(results), timings)


def _append_slice(parts: list[bytes], piece: Slice) -> None:
    draw = piece.draw
    parts.append(
        _SLICE.pack(
            piece.session,
            piece.first,
            piece.rollback,
            len(piece.token_ids),
            piece.drafts,
            piece.status,
            draw is not None,
            0,
        )
    )
    if draw is not None:
        parts.append(
            _DRAW.pack(draw.temperature, draw.top_p, draw.penalty, draw.seed, draw.top_k, draw.reply_start)
        )
    if piece.status is SliceStatus.FAILED:
        _append_fault(parts, piece.fault_code, piece.fault_text)


def _append_fault(parts: list[bytes], code: str, text: str) -> None:
    encoded_code, encoded_text = code.encode("ascii"), text.encode("utf-8")
    parts += (_FAULT.pack(len(encoded_code), len(encoded_text)), encoded_code, encoded_text)


def _append_timings(parts: list[bytes], timings: tuple[StageTiming, ...]) -> None:
    for timing in timings:
        queue_us, compute_us, received_bytes = timing.queue_us, timing.compute_us, timing.received_bytes
        if len(timing.cells) == 1:
            parts.append(_TIMING_OF_ONE.pack(queue_us, compute_us, received_bytes, *timing.cells[0]))
            continue
        parts.append(_TIMING.pack(queue_us, compute_us, received_bytes))
        parts.append(struct.pack(f"<{2 * len(timing.cells)}I", *chain.from_iterable(timing.cells)))


SliceRecord = tuple[tuple[int, ...], Draw | None, tuple[str, str]]


def _parse_slices(body: bytearray, count: int, max_rows: int) -> tuple[list[SliceRecord], int, int, int]:
    """The records, where they end, rows in all, and rows of slices with status OK."""
    records: list[SliceRecord] = []
    offset = _COUNT.size
    rows = live = 0
    for _ in range(count):
        record = _SLICE.unpack_from(body, offset)
        offset += _SLICE.size
        _, _, _, own_rows, _, status, draws, reserved = record
        rows += own_rows
        if status == SliceStatus.OK:
            live += own_rows
        if rows > max_rows:
            raise RemoteProtocolError(f"more rows than the {max_rows} agreed")
        if status not in _SLICE_STATUS or draws > 1 or reserved:
            raise RemoteProtocolError("a slice has an unknown status or flag")
        draw = None
        if draws:
            draw = _draw(bytes(body[offset : offset + _DRAW.size]))
            offset += _DRAW.size
        fault = _NO_FAULT
        if status == SliceStatus.FAILED:
            fault, offset = _parse_fault(body, offset)
        records.append((record, draw, fault))
    return records, offset, rows, live


@lru_cache(maxsize=256)
def _draw(record: bytes) -> Draw:
    """Every slice of a reply brings the same one. Raises struct.error (too short), LocalProtocolError."""
    temperature, top_p, penalty, seed, top_k, reply_start = _DRAW.unpack(record)
    return Draw(temperature, top_p, top_k, penalty, seed, reply_start)


def _build_slices(records: list[SliceRecord], ids: NDArray[np.int32]) -> tuple[Slice, ...]:
    slices = []
    start = 0
    for (session, first, rollback, rows, drafts, status, _, _), draw, (code, text) in records:
        own_ids = ids if rows == len(ids) else ids[start : start + rows]
        slices.append(
            Slice(
                SessionId(session), first, rollback, own_ids, drafts, draw, _SLICE_STATUS[status], code, text
            )
        )
        start += rows
    return tuple(slices)


def _parse_fault(body: bytearray, offset: int) -> tuple[tuple[str, str], int]:
    code_bytes, text_bytes = _FAULT.unpack_from(body, offset)
    start = offset + _FAULT.size
    middle, end = start + code_bytes, start + code_bytes + text_bytes
    if code_bytes > _MAX_CODE or text_bytes > MAX_FAULT_TEXT or end > len(body):
        raise RemoteProtocolError("the fault of a slice is too long")
    try:
        return (body[start:middle].decode("ascii"), body[middle:end].decode("utf-8")), end
    except UnicodeDecodeError:
        raise RemoteProtocolError("the fault of a slice is not text") from None


def _parse_timings(body: bytearray, offset: int, slices: int) -> tuple[tuple[StageTiming, ...], int]:
    (count,) = _COUNT.unpack_from(body)
    if count > MAX_STAGES or offset + count * (_TIMING.size + slices * _CELLS) > len(body):
        raise RemoteProtocolError(f"{count} stage timings do not fit into the frame")
    timings = []
    for _ in range(count):
        if slices == 1:
            queue_us, compute_us, received_bytes, live, dead = _TIMING_OF_ONE.unpack_from(body, offset)
            timings.append(StageTiming(queue_us, compute_us, received_bytes, ((live, dead),)))
            offset += _TIMING_OF_ONE.size
            continue
        queue_us, compute_us, received_bytes = _TIMING.unpack_from(body, offset)
        numbers = struct.unpack_from(f"<{2 * slices}I", body, offset + _TIMING.size)
        cells = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        timings.append(StageTiming(queue_us, compute_us, received_bytes, cells))
        offset += _TIMING.size + slices * _CELLS
    return tuple(timings), offset


def _skip_padding(body: bytearray, offset: int) -> int:
    end = offset + -offset % ALIGNMENT
    if end > len(body) or body.count(0, offset, end) != end - offset:
        raise RemoteProtocolError("padding is missing or not zero")
    return end
