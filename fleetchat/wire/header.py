"""The 40 bytes before every body, and the tag that authenticates them.

Little-endian: magic, version, kind, flags, epoch, batch sequence, slice count, body length, tag. The tag is
keyed BLAKE2b over direction, running number of the frame on this link, the header without the tag, and the
body, so that noise, forgery, replay, reordering and reflection all fail the same way.
"""

from __future__ import annotations

import hashlib
import struct
from hmac import compare_digest
from typing import NamedTuple

from fleetchat.errors import RemoteProtocolError
from fleetchat.wire.kinds import Kind

MAGIC = b"FLTC"
PROTOCOL_VERSION = 1
_TLS_RECORDS = (b"\x15", b"\x16")  # an alert, a handshake
TAG_BYTES = 16
NO_TAG = bytes(TAG_BYTES)  # of handshake frames: there is no connection key yet

_FIELDS = struct.Struct("<4sBBHIIII")
_KINDS = {kind.value: kind for kind in Kind}
_NUMBER = struct.Struct("<BQ")
UNTAGGED_BYTES = _FIELDS.size
HEADER_BYTES = UNTAGGED_BYTES + TAG_BYTES


class Header(NamedTuple):
    """A parsed header. `kind` is known, everything else is unchecked."""

    version: int
    kind: Kind
    flags: int
    epoch: int
    sequence: int
    slices: int
    length: int  # of the body, in bytes
    tag: bytes


def pack_untagged(
    kind: Kind, length: int, *, flags: int = 0, epoch: int = 0, sequence: int = 0, slices: int = 0
) -> bytes:
    """The header without its tag."""
    return _FIELDS.pack(MAGIC, PROTOCOL_VERSION, kind, flags, epoch, sequence, slices, length)


def parse_header(encoded: bytes) -> Header:
    """Parse HEADER_BYTES bytes. Raises RemoteProtocolError on a wrong magic or an unknown kind."""
    magic, version, kind, flags, epoch, sequence, slices, length = _FIELDS.unpack_from(encoded)
    if magic != MAGIC:
        check_magic(magic)
    known = _KINDS.get(kind)
    if known is None:
        raise RemoteProtocolError(f"frame of unknown kind {kind}")
    return Header(
        version, known, flags, epoch, sequence, slices, length, encoded[UNTAGGED_BYTES:HEADER_BYTES]
    )


def check_magic(start: bytes) -> None:
    """Refuse what cannot become a frame as soon as its first bytes are there."""
    if start[:1] in _TLS_RECORDS:
        raise RemoteProtocolError(
            "the other side speaks TLS",
            hint="use TLS on both sides: tls = true under [fleet] for the chat, --tls for a peer",
        )
    if not MAGIC.startswith(start[: len(MAGIC)]):
        raise RemoteProtocolError(
            "the other side does not speak the fleetchat protocol",
            hint="is another program listening on this port?",
        )


class Tagger:
    """Running tags of one direction of one link."""

    def __init__(self, key: bytes, direction: int) -> None:
        """`key` has 32 bytes; `direction` is 0 from the dialler, 1 from the listener."""
        self._keyed = hashlib.blake2b(key=key, digest_size=TAG_BYTES)
        self._direction = direction
        self._number = 0

    def begin(self, untagged_header: bytes) -> hashlib.blake2b:
        """A hash of the next frame, to be updated with its body."""
        running = self._keyed.copy()
        running.update(_NUMBER.pack(self._direction, self._number) + untagged_header)
        self._number += 1
        return running

    def accepts(self, frame: bytes) -> bool:
        """Whether the next frame, header and body in one piece, has the right tag; if so, it is counted."""
        running = self._keyed.copy()
        running.update(_NUMBER.pack(self._direction, self._number) + frame[:UNTAGGED_BYTES])
        running.update(memoryview(frame)[HEADER_BYTES:])
        right = compare_digest(running.digest(), frame[UNTAGGED_BYTES:HEADER_BYTES])
        self._number += right
        return right
