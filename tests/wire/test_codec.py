"""Bodies with a right tag that are wrong all the same: what an authenticated but broken peer may send."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.ids import SessionId
from fleetchat.wire.codec import check_header, decode, encode
from fleetchat.wire.control import JSON_FRAMES
from fleetchat.wire.frames import (
    Forward,
    Frame,
    Kind,
    Limits,
    Result,
    ResultStatus,
    SliceResult,
    SliceStatus,
    WireDtype,
)
from fleetchat.wire.header import NO_TAG, PROTOCOL_VERSION, Header
from tests.wire.samples import (
    EPOCH,
    FAILED,
    FILL,
    FIRST,
    LAST,
    MIDDLE,
    MIDDLE_F32,
    SAMPLE_IDS,
    SAMPLES,
    TIMING,
    VERIFY,
    Sample,
    forward,
    hidden,
    joined,
    plain,
    slice_of,
)


def header_and_body(frame: Frame, limits: Limits) -> tuple[Header, bytearray]:
    kind, flags, epoch, sequence, slices, body = encode(frame, limits)
    content = bytearray(joined(body))
    return Header(PROTOCOL_VERSION, kind, flags, epoch, sequence, slices, len(content), NO_TAG), content


def decoded(header: Header, body: bytearray | bytes, limits: Limits) -> Frame:
    header = header._replace(length=len(body))
    check_header(header, limits)
    return decode(header, bytearray(body), limits)


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_IDS)
def test_encoding_is_canonical(sample: Sample) -> None:
    header, body = header_and_body(sample.frame, sample.limits)
    frame = decoded(header, body, sample.limits)
    assert plain(frame) == plain(sample.frame)
    assert header_and_body(frame, sample.limits) == (header, body)


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_IDS)
def test_a_body_that_is_too_short_or_too_long_is_refused(sample: Sample) -> None:
    header, body = header_and_body(sample.frame, sample.limits)
    for cut in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            decoded(header, body[:cut], sample.limits)
    for more in (b"\0", bytes(16), b"}"):
        with pytest.raises(RemoteProtocolError):
            decoded(header, body + more, sample.limits)


@settings(max_examples=300, deadline=None)
@given(
    number=st.integers(0, len(SAMPLES) - 1),
    where=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    slices=st.integers(-2, 2),
)
def test_a_changed_body_is_refused_or_is_a_legal_frame(
    number: int, where: float, byte: int, slices: int
) -> None:
    """No other error than RemoteProtocolError, and what comes out encodes again."""
    sample = SAMPLES[number]
    header, body = header_and_body(sample.frame, sample.limits)
    if body:
        body[int(where * len(body))] = byte
    header = header._replace(slices=max(header.slices + slices, 0))
    try:
        frame = decoded(header, body, sample.limits)
    except RemoteProtocolError:
        return
    header_and_body(frame, sample.limits)


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(list(Kind)), body=st.binary(max_size=200), slices=st.integers(0, 4))
def test_random_bodies_are_refused_or_legal(kind: Kind, body: bytes, slices: int) -> None:
    if kind <= Kind.REFUSED:
        return
    flags = 3 if kind is Kind.FORWARD else 0
    header = Header(PROTOCOL_VERSION, kind, flags, 1, 0, slices, len(body), NO_TAG)
    try:
        decoded(header, body, MIDDLE)
    except RemoteProtocolError:
        return


FORWARD = forward(VERIFY, FILL, FAILED, rows=4, timings=(TIMING,))


def put(body: bytearray, offset: int, layout: str, value: int | float) -> bytearray:
    changed = bytearray(body)
    struct.pack_into(layout, changed, offset, value)
    return changed


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (0, "<I", 2, "ends inside|not zero|timings|hidden"),
        (0, "<I", 2**32 - 1, "timings do not fit"),
        (4 + 12, "<I", 2**32 - 1, "more rows than the 16 agreed"),
        (4 + 12, "<I", 17, "more rows than the 16 agreed"),
        (4 + 12, "<I", 4, "."),
        (4 + 12, "<I", 0, "."),
        (4 + 16, "<I", 3, "drafts must be from 0 to 2"),
        (4 + 20, "<B", 3, "unknown status or flag"),
        (4 + 21, "<B", 2, "unknown status or flag"),
        (4 + 22, "<H", 1, "unknown status or flag"),
        (4 + 24, "<d", float("nan"), "temperature"),
        (4 + 32, "<d", 1.5, "top_p"),
    ],
)
def test_a_slice_record_is_checked(offset: int, layout: str, value: float, message: str) -> None:
    header, body = header_and_body(FORWARD, MIDDLE)
    with pytest.raises(RemoteProtocolError, match=message):
        decoded(header, put(body, offset, layout, value), MIDDLE)


def test_token_ids_outside_the_vocabulary_are_refused() -> None:
    header, body = header_and_body(forward(slice_of(1, 999)), FIRST)
    assert isinstance(decoded(header, body, FIRST), Forward)
    for wrong in (1000, -1):
        body[-4:] = struct.pack("<i", wrong)
        with pytest.raises(RemoteProtocolError, match="a token id is not from 0 to 999"):
            decoded(header, body, FIRST)
    header, body = header_and_body(
        Result(EPOCH, FORWARD.sequence, (SliceResult(SessionId(1), ResultStatus.DRAWN, 0, 999),)), LAST
    )
    with pytest.raises(RemoteProtocolError, match="unknown status or token"):
        decoded(header, put(body, 12, "<I", 1000), LAST)


def test_many_token_ids_are_checked_too() -> None:
    wide = Limits(max_body=10_000, max_rows=100, max_slices=1, hidden=0, vocabulary=1000)
    ids = np.arange(100, dtype=np.int32)
    header, body = header_and_body(forward(slice_of(1, *ids)), wide)
    assert plain(decoded(header, body, wide)) == plain(forward(slice_of(1, *ids)))
    with pytest.raises(RemoteProtocolError, match="a token id"):
        decoded(header, put(body, len(body) - 200, "<i", -1), wide)


@pytest.mark.parametrize("more", [-8, -1, 1, 8])
def test_hidden_rows_must_fill_the_rest_exactly(more: int) -> None:
    header, body = header_and_body(FORWARD, MIDDLE)
    body = body + bytes(more) if more > 0 else body[:more]
    with pytest.raises(RemoteProtocolError, match="4 hidden rows of 4 f16 need 32 bytes"):
        decoded(header, body, MIDDLE)


def test_padding_must_be_zero() -> None:
    header, body = header_and_body(FORWARD, MIDDLE)
    padding = len(body) - 32 - 4 * 6 - 8  # after it: 6 ids, 8 zeros, 32 bytes of hidden rows
    for offset in (padding - 1, len(body) - 33):
        with pytest.raises(RemoteProtocolError, match="not zero"):
            decoded(header, put(body, offset, "<B", 1), MIDDLE)


@pytest.mark.parametrize(
    ("frame", "limits"),
    [
        (forward(VERIFY, rows=3), FIRST),
        (forward(VERIFY), MIDDLE),
        (forward(VERIFY, rows=3), MIDDLE_F32),
        (forward(*[slice_of(i, 1) for i in range(5)]), FIRST),
        (forward(slice_of(1, *range(17))), FIRST),
        (
            Result(
                EPOCH,
                FORWARD.sequence,
                tuple(SliceResult(SessionId(i), ResultStatus.NO_DRAW) for i in range(5)),
            ),
            LAST,
        ),
        (Forward(EPOCH, FORWARD.sequence, (FILL,), np.zeros((1, 5), np.float16)), MIDDLE),
        (Forward(EPOCH, FORWARD.sequence, (VERIFY,), np.zeros((4, 3), np.float16).T), MIDDLE),
        (forward(VERIFY), Limits(64, 16, 4, 0)),
    ],
)
def test_what_the_link_does_not_carry_is_not_sent(frame: Frame, limits: Limits) -> None:
    with pytest.raises(LocalProtocolError):
        encode(frame, limits)


def test_the_largest_frames_fit_the_negotiated_limit() -> None:
    text = "\u2702" * 170
    whole = [slice_of(i, 1, 2, 3, 4, drafts=3, draw=VERIFY.draw) for i in range(4)]
    failed = [
        replace(piece, status=SliceStatus.FAILED, fault_code="shard-damaged", fault_text=text)
        for piece in whole
    ]
    timing = replace(TIMING, cells=((1, 1),) * 4)
    encode(forward(*failed, rows=0, timings=(timing,) * 3), MIDDLE)
    encode(
        forward(
            *[slice_of(i, 1, 2, 3, 4, draw=VERIFY.draw) for i in range(4)], rows=16, timings=(timing,) * 3
        ),
        MIDDLE,
    )
    results = [SliceResult(SessionId(i), ResultStatus.FAILED, 0, 0, "shard-damaged", text) for i in range(4)]
    encode(Result(EPOCH, FORWARD.sequence, tuple(results), (timing,) * 3), LAST)


def test_hidden_rows_keep_every_bit() -> None:
    for dtype, limits in ((WireDtype.F16, MIDDLE), (WireDtype.F32, MIDDLE_F32)):
        rows = hidden(3, dtype)
        rows[0, :3] = [np.nan, -0.0, np.inf]
        frame = Forward(EPOCH, FORWARD.sequence, (VERIFY,), rows)
        received = decoded(*header_and_body(frame, limits), limits)
        assert plain(received) == plain(frame)


JSON_SAMPLES = [sample for sample in SAMPLES if type(sample.frame) in JSON_FRAMES.values()]


def json_header(kind: Kind) -> Header:
    return Header(PROTOCOL_VERSION, kind, 0, 0, 0, 0, 0, NO_TAG)


def refused_json(kind: Kind, text: str | bytes) -> None:
    body = text.encode() if isinstance(text, str) else text
    with pytest.raises(RemoteProtocolError):
        decoded(json_header(kind), body, MIDDLE)


@pytest.mark.parametrize("sample", JSON_SAMPLES, ids=[type(s.frame).__name__ for s in JSON_SAMPLES])
def test_json_has_exactly_the_fields_and_their_types(sample: Sample) -> None:
    header, body = header_and_body(sample.frame, sample.limits)
    document = json.loads(body)
    for name in document:
        refused_json(header.kind, json.dumps({key: value for key, value in document.items() if key != name}))
        for wrong in wrong_values(document[name]):
            if name == "offsets" and wrong == [1, 2]:
                continue  # these are offsets
            refused_json(header.kind, json.dumps(document | {name: wrong}))
    refused_json(header.kind, json.dumps(document | {"more": 1}))
    refused_json(header.kind, json.dumps(document)[:-1] + f', "{name}": 1}}')


def wrong_values(right: object) -> list[Any]:
    """Values of other types, out of range, nested; and NaN, which json.dumps writes."""
    wrong: list[Any] = [1.5, -1, float("nan"), 10**30, {"a": 1}, [[[[1]]]], "\x1b[31m", "x" * 9999, "\ud800"]
    if not isinstance(right, bool):
        wrong.append(True)
    if right is not None:
        wrong.append(None)
    if isinstance(right, list):
        wrong += [["host"], [1, 2], [[1, 2, 3]], [[1, 2, 3, "4"]], ["host", "80"], ["host", 80, 1]]
    return [value for value in wrong if value != right]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"{",
        b'{"reason": "\xff"}',
        b'{"reason": "a", "reason": "a"}',
        b'{"reason": NaN}',
        b'{"reason": Infinity}',
        b'{"reason": ' + b"9" * 5000 + b"}",
        b'{"reason": ' + b"[" * 60_000,
        b'{"a":' * 10_000,
        b'\xef\xbb\xbf{"reason": "a"}',
    ],
)
def test_a_body_that_is_no_json_document_is_refused(text: bytes) -> None:
    refused_json(Kind.GOODBYE, text)
