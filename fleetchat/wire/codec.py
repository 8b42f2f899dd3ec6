"""Frame <-> header fields and body. Tags and running numbers are `protocol.py`'s work."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.ids import Epoch, SessionId
from fleetchat.wire.batches import decode_forward, decode_result, encode_forward, encode_result, forward_flags
from fleetchat.wire.control import JSON_FRAMES, decode_json, encode_json
from fleetchat.wire.frames import (
    CONTROL_BODY,
    Attached,
    Cancel,
    Chunk,
    Close,
    Compact,
    Fork,
    Forward,
    Frame,
    Kept,
    Kind,
    Limits,
    NotYet,
    Ping,
    Pong,
    Result,
    StatsRequest,
    Stored,
)
from fleetchat.wire.header import Header

_U64 = struct.Struct("<Q")
_ONE = struct.Struct("<I")
_TWO = struct.Struct("<II")
_THREE = struct.Struct("<III")
_PLACE = struct.Struct("<BQ")  # number of a file and an offset in it
_CHUNK = struct.Struct("<BQI")  # the same, and the length of the payload
CHUNK_HEAD = _CHUNK.size  # bytes of a CHUNK before its payload

KIND_OF: Mapping[type[Frame], Kind] = {
    Ping: Kind.PING,
    Pong: Kind.PONG,
    StatsRequest: Kind.STATS_REQUEST,
    Attached: Kind.ATTACHED,
    NotYet: Kind.NOT_YET,
    Forward: Kind.FORWARD,
    Result: Kind.RESULT,
    Cancel: Kind.CANCEL,
    Close: Kind.CLOSE,
    Compact: Kind.COMPACT,
    Fork: Kind.FORK,
    Chunk: Kind.CHUNK,
    Kept: Kind.KEPT,
    Stored: Kind.STORED,
    **{frame_type: kind for kind, frame_type in JSON_FRAMES.items()},
}
FIXED_BODY: Mapping[Kind, int] = {
    Kind.PING: _U64.size,
    Kind.PONG: _U64.size,
    Kind.STATS_REQUEST: 0,
    Kind.ATTACHED: 0,
    Kind.NOT_YET: 0,
    Kind.CANCEL: _TWO.size,
    Kind.CLOSE: _ONE.size,
    Kind.COMPACT: _ONE.size,
    Kind.FORK: _THREE.size,
    Kind.KEPT: _PLACE.size,
    Kind.STORED: 0,
}
_BATCHES = frozenset({Kind.FORWARD, Kind.RESULT})
_AGREED = _BATCHES | {Kind.CHUNK}  # whose size the two sides agree on
_WITH_EPOCH = frozenset({Kind.FORWARD, Kind.RESULT, Kind.CANCEL, Kind.CLOSE, Kind.COMPACT, Kind.FORK})


class Encoded(NamedTuple):
    """Header fields of a frame, and the buffers of its body."""

    kind: Kind
    flags: int
    epoch: int
    sequence: int
    slices: int
    body: list[bytes | memoryview]


def encode(frame: Frame, limits: Limits) -> Encoded:
    """Raises LocalProtocolError when the frame does not fit the limits of the link."""
    if isinstance(frame, Forward):
        body = encode_forward(frame, limits)
        encoded = Encoded(
            Kind.FORWARD, forward_flags(limits), frame.epoch, frame.sequence, len(frame.slices), body
        )
    elif isinstance(frame, Result):
        body = encode_result(frame, limits)
        encoded = Encoded(Kind.RESULT, 0, frame.epoch, frame.sequence, len(frame.results), body)
    elif isinstance(frame, Chunk):
        head = _CHUNK.pack(frame.file, frame.offset, len(frame.payload))
        encoded = Encoded(Kind.CHUNK, 0, 0, 0, 0, [head, memoryview(frame.payload)])
    else:
        epoch = frame.epoch if isinstance(frame, (Cancel, Close, Compact, Fork)) else 0
        encoded = Encoded(KIND_OF[type(frame)], 0, epoch, 0, 0, [_small_body(frame)])
    length = sum(map(len, encoded.body))
    if length > body_limit(encoded.kind, limits):
        raise LocalProtocolError(f"{encoded.kind.name} of {length} bytes is larger than this link carries")
    return encoded


def body_limit(kind: Kind, limits: Limits) -> int:
    """Most bytes in a body of this kind."""
    fixed = FIXED_BODY.get(kind)
    if fixed is not None:
        return fixed
    return limits.max_body if kind in _AGREED else CONTROL_BODY


def check_header(header: Header, limits: Limits) -> None:
    """All that can be refused before the body is allocated. Raises RemoteProtocolError."""
    kind = header.kind
    flags = forward_flags(limits) if kind is Kind.FORWARD else 0
    fits = header.length <= limits.max_body and header.slices <= limits.max_slices
    if fits and kind in _BATCHES and header.flags == flags:  # the frequent ones, at one glance
        return
    fixed = FIXED_BODY.get(kind)
    if fixed is not None and header.length != fixed:
        raise RemoteProtocolError(f"{kind.name} must have {fixed} bytes, not {header.length}")
    if header.length > body_limit(kind, limits):
        raise RemoteProtocolError(
            f"{kind.name} of {header.length} bytes, agreed were at most {body_limit(kind, limits)}"
        )
    if header.flags != flags:
        raise RemoteProtocolError(f"{kind.name} has flags {header.flags:#x}, expected {flags:#x}")
    if kind not in _WITH_EPOCH and header.epoch:
        raise RemoteProtocolError(f"{kind.name} has an epoch in its header")
    if kind in _BATCHES:
        if header.slices > limits.max_slices:
            raise RemoteProtocolError(f"{header.slices} slices, agreed were at most {limits.max_slices}")
    elif header.sequence or header.slices:
        raise RemoteProtocolError(f"{kind.name} has a sequence or slices")


def decode(header: Header, body: bytearray, limits: Limits) -> Frame:
    """The frame of a body whose header passed `check_header` and whose tag was right.

    Arrays are views of `body`, which the frame then owns. Raises RemoteProtocolError.
    """
    try:
        if header.kind in JSON_FRAMES:
            return decode_json(header.kind, body)
        return _DECODERS[header.kind](header, body, limits)
    except LocalProtocolError as error:  # a constructor's refusal: here it is the other side's fault
        raise RemoteProtocolError(f"illegal {header.kind.name}: {error.message}") from None
    except struct.error:
        raise RemoteProtocolError(f"{header.kind.name} ends inside a field") from None


def _small_body(frame: Frame) -> bytes:
    match frame:
        case Ping() | Pong():
            return _U64.pack(frame.token)
        case Cancel():
            return _TWO.pack(frame.session, frame.keep)
        case Close() | Compact():
            return _ONE.pack(frame.session)
        case Fork():
            return _THREE.pack(frame.new, frame.source, frame.length)
        case Kept():
            return _PLACE.pack(frame.file, frame.offset)
        case StatsRequest() | Attached() | NotYet() | Stored():
            return b""
        case Forward() | Result() | Chunk():
            raise LocalProtocolError("batches and chunks have their own encoders")
        case _:
            return encode_json(frame)


def _session_of(body: bytearray) -> SessionId:
    (session,) = _ONE.unpack(body)
    return SessionId(session)


def _chunk(header: Header, body: bytearray, limits: Limits) -> Chunk:
    """Its payload is a view of the body."""
    file, offset, length = _CHUNK.unpack_from(body)
    if CHUNK_HEAD + length != len(body):
        raise RemoteProtocolError("CHUNK does not have the length that it tells")
    return Chunk(file, offset, memoryview(body)[CHUNK_HEAD:])


def _cancel(header: Header, body: bytearray, limits: Limits) -> Cancel:
    session, keep = _TWO.unpack(body)
    return Cancel(Epoch(header.epoch), SessionId(session), keep)


def _fork(header: Header, body: bytearray, limits: Limits) -> Fork:
    new, source, length = _THREE.unpack(body)
    return Fork(Epoch(header.epoch), SessionId(new), SessionId(source), length)


_DECODERS: Mapping[Kind, Callable[[Header, bytearray, Limits], Frame]] = {
    Kind.FORWARD: decode_forward,
    Kind.RESULT: decode_result,
    Kind.PING: lambda header, body, limits: Ping(_U64.unpack(body)[0]),
    Kind.PONG: lambda header, body, limits: Pong(_U64.unpack(body)[0]),
    Kind.STATS_REQUEST: lambda header, body, limits: StatsRequest(),
    Kind.ATTACHED: lambda header, body, limits: Attached(),
    Kind.NOT_YET: lambda header, body, limits: NotYet(),
    Kind.CANCEL: _cancel,
    Kind.CLOSE: lambda header, body, limits: Close(Epoch(header.epoch), _session_of(body)),
    Kind.COMPACT: lambda header, body, limits: Compact(Epoch(header.epoch), _session_of(body)),
    Kind.FORK: _fork,
    Kind.CHUNK: _chunk,
    Kind.KEPT: lambda header, body, limits: Kept(*_PLACE.unpack(body)),
    Kind.STORED: lambda header, body, limits: Stored(),
}
