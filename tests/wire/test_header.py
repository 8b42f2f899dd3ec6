"""The 40 bytes before every body."""

from __future__ import annotations

import hashlib
import struct

import pytest

from fleetchat.errors import RemoteProtocolError
from fleetchat.wire.frames import StatsRequest
from fleetchat.wire.header import HEADER_BYTES, Header, Tagger, pack_untagged, parse_header
from fleetchat.wire.kinds import Kind
from fleetchat.wire.states import Side, State
from tests.wire.samples import Pair, joined


def test_the_layout_is_fixed() -> None:
    untagged = pack_untagged(Kind.FORWARD, 0x01020304, flags=3, epoch=5, sequence=6, slices=7)
    assert untagged.hex() == "464c5443 01 30 0300 05000000 06000000 07000000 04030201".replace(" ", "")
    tag = bytes(range(16))
    assert parse_header(untagged + tag) == Header(1, Kind.FORWARD, 3, 5, 6, 7, 0x01020304, tag)
    assert HEADER_BYTES == 40


def test_an_unknown_kind_is_refused() -> None:
    encoded = bytearray(pack_untagged(Kind.PING, 8) + bytes(16))
    encoded[5] = 99
    with pytest.raises(RemoteProtocolError, match="unknown kind 99"):
        parse_header(bytes(encoded))


def test_the_tag_is_keyed_blake2b_over_direction_number_header_and_body() -> None:
    key = b"k" * 32
    tagger = Tagger(key, Side.LISTENER)
    for number in range(3):
        running = tagger.begin(b"header")
        running.update(b"body")
        content = struct.pack("<BQ", 1, number) + b"header" + b"body"
        assert running.digest() == hashlib.blake2b(content, key=key, digest_size=16).digest()


def test_an_empty_body_is_one_buffer() -> None:
    pair = Pair(State.CONTROL)
    buffers = pair.dialler.send(StatsRequest())
    assert [len(buffer) for buffer in buffers] == [HEADER_BYTES]
    assert joined(buffers)[:4] == b"FLTC"
