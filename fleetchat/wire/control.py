"""JSON bodies of control frames, checked strictly.

A document has exactly the fields of its frame. The constructor checks every value, and what was parsed must
encode to the same document again, so that nothing odd (a text that needed cleaning) slips through.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from fleetchat.errors import RemoteProtocolError
from fleetchat.ids import Address
from fleetchat.wire.frames import (
    Attach,
    AttachRole,
    Error,
    FaultCode,
    Goodbye,
    Have,
    Kind,
    Measure,
    Measured,
    Offer,
    Open,
    Progress,
    Ready,
    SessionStats,
    ShardFile,
    Stats,
    WireDtype,
)

JsonFrame = Open | Progress | Ready | Stats | Error | Goodbye | Attach | Offer | Have | Measure | Measured
JSON_FRAMES: Mapping[Kind, type[JsonFrame]] = {
    Kind.OPEN: Open,
    Kind.PROGRESS: Progress,
    Kind.READY: Ready,
    Kind.STATS: Stats,
    Kind.ERROR: Error,
    Kind.GOODBYE: Goodbye,
    Kind.ATTACH: Attach,
    Kind.OFFER: Offer,
    Kind.HAVE: Have,
    Kind.MEASURE: Measure,
    Kind.MEASURED: Measured,
}


def encode_json(frame: JsonFrame) -> bytes:
    return json.dumps(_document(frame), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def decode_json(kind: Kind, body: bytearray) -> JsonFrame:
    """Raises RemoteProtocolError, or LocalProtocolError from the frame's constructor."""
    frame_type = JSON_FRAMES[kind]
    document = _load(kind, body)
    names = [field.name for field in fields(frame_type)]
    if not isinstance(document, dict) or document.keys() != set(names):
        raise RemoteProtocolError(f"{kind.name} must have exactly the fields {', '.join(names)}")
    values = dict(document)
    for name, convert in _CONVERSIONS.items():
        if name in values:
            values[name] = convert(values[name])
    frame = frame_type(**values)
    if _document(frame) != document:
        raise RemoteProtocolError(f"{kind.name} has a text with control characters, or one that is too long")
    return frame


def _document(frame: JsonFrame) -> dict[str, object]:
    document: dict[str, object] = {field.name: getattr(frame, field.name) for field in fields(frame)}
    if isinstance(frame, Stats):
        document["sessions"] = [[s.session, s.length, s.live, s.dead] for s in frame.sessions]
    if isinstance(frame, Open) and frame.next_address is not None:
        document["next_address"] = list(frame.next_address)
    if isinstance(frame, Offer):
        document["files"] = [list(file) for file in frame.files]
    if isinstance(frame, Have):
        document["offsets"] = list(frame.offsets)
    return document


def _load(kind: Kind, body: bytearray) -> object:
    try:
        return json.loads(
            body.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        raise RemoteProtocolError(f"{kind.name} is not a JSON document") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a field is there twice")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _member(names: type[WireDtype] | type[AttachRole] | type[FaultCode]) -> Callable[[object], object]:
    def convert(value: object) -> object:
        try:
            return names(value)  # type: ignore[arg-type]
        except ValueError:
            raise RemoteProtocolError(f"not one of {', '.join(names)}") from None

    return convert


def _address(value: object) -> Address | None:
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) == 2):
        raise RemoteProtocolError("an address is a host and a port")
    return Address(*value)


def _sessions(value: object) -> tuple[SessionStats, ...]:
    if not isinstance(value, list):
        raise RemoteProtocolError("sessions must be a list")
    return tuple(_session(entry) for entry in value)


def _session(entry: object) -> SessionStats:
    if not (isinstance(entry, list) and len(entry) == 4):
        raise RemoteProtocolError("a session is four numbers")
    return SessionStats(*entry)


def _files(value: object) -> tuple[ShardFile, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, list) and len(entry) == 3 for entry in value):
        raise RemoteProtocolError("files are lists of a name, a size and a hash")
    return tuple(ShardFile(*entry) for entry in value)


def _offsets(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise RemoteProtocolError("offsets must be a list")
    return tuple(value)


_CONVERSIONS: Mapping[str, Callable[[Any], object]] = {
    "wire_dtype": _member(WireDtype),
    "role": _member(AttachRole),
    "code": _member(FaultCode),
    "next_address": _address,
    "sessions": _sessions,
    "files": _files,
    "offsets": _offsets,
}
