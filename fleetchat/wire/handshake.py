"""Who is who: mutual proof of the shared key, before anything else is parsed. Pure.

    dialler   HELLO(protocol, purpose, nonce, fleetchat version)        ->
              <- CHALLENGE(protocol, nonce, fleetchat version, proof)      listener
              PROOF(proof)                                              ->
              <- WELCOME(proof)
    either    REFUSED(reason, protocol, fleetchat version)

A proof is HMAC-SHA256 with the shared key over its label and both messages, so it holds both nonces, both
roles and the purpose: nothing can be replayed, reflected or changed. The connection keys are derived from
the same transcript. HELLO's header and REFUSED look the same in every protocol version.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from fleetchat import __version__
from fleetchat.errors import (
    AuthenticationFailed,
    FleetchatError,
    LocalProtocolError,
    PeerRefused,
    RemoteProtocolError,
)
from fleetchat.wire.header import HEADER_BYTES, NO_TAG, PROTOCOL_VERSION, Header, pack_untagged
from fleetchat.wire.kinds import Kind
from fleetchat.wire.states import Purpose, Side

MAX_HANDSHAKE_FRAME = 1024  # bytes, header included: all that a stranger can make us hold
SHORTEST_KEY = 16  # bytes
_NONCE = 32
_PROOF = 32

_HELLO = struct.Struct("<HBx32s32s")  # protocol, purpose, nonce, fleetchat version
_CHALLENGE = struct.Struct("<Hxx32s32s32s")  # protocol, nonce, fleetchat version, proof
_REFUSED = struct.Struct("<HBx32s")  # protocol, reason, fleetchat version
BODY_BYTES: Mapping[Kind, int] = {
    Kind.HELLO: _HELLO.size,
    Kind.CHALLENGE: _CHALLENGE.size,
    Kind.PROOF: _PROOF,
    Kind.WELCOME: _PROOF,
    Kind.REFUSED: _REFUSED.size,
}
assert max(BODY_BYTES.values()) + HEADER_BYTES <= MAX_HANDSHAKE_FRAME

_BECAUSE_OF_VERSION = 1
_BECAUSE_OF_KEY = 2
_VERSION_CHARACTERS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-!_")
_KEY_HINT = "give both sides the same key file (--key-file, or fleet.key in the configuration folder)"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a finished handshake leaves behind."""

    purpose: Purpose
    their_version: str  # of fleetchat
    dialler_key: bytes  # tags what the dialler sends
    listener_key: bytes


class Handshake:
    """One side of it. `outgoing` collects the frames to be written, also when a method raises."""

    def __init__(
        self, side: Side, key: bytes, purpose: Purpose = Purpose.CONTROL, nonce: bytes | None = None
    ) -> None:
        """The purpose is the dialler's choice. `nonce` (32 bytes) is for tests."""
        if len(key) < SHORTEST_KEY:
            raise LocalProtocolError(f"the fleet key must have at least {SHORTEST_KEY} bytes")
        self.outgoing: list[bytes] = []
        self._side = side
        self._key = key
        self._purpose = purpose
        self._nonce = secrets.token_bytes(_NONCE) if nonce is None else nonce
        self._their_version = ""
        self._transcript = b""
        self._expected = {Kind.HELLO} if side is Side.LISTENER else {Kind.CHALLENGE, Kind.REFUSED}

    def start(self) -> None:
        """Queue the dialler's HELLO."""
        hello = _HELLO.pack(PROTOCOL_VERSION, self._purpose, self._nonce, _our_version())
        self._transcript = hello
        self._queue(Kind.HELLO, hello)

    def check_header(self, header: Header) -> None:
        """Before the body is read: version, kind and the one length that this kind has.

        Raises PeerRefused (other version), RemoteProtocolError (anything else).
        """
        if header.version != PROTOCOL_VERSION and header.kind is not Kind.REFUSED:
            self._refuse(_BECAUSE_OF_VERSION, _version_mismatch(header.version, ""))
        if header.kind not in self._expected:
            raise RemoteProtocolError(f"{header.kind.name} during the handshake")
        plain = (0, 0, 0, 0, BODY_BYTES[header.kind], NO_TAG)
        fields = (header.flags, header.epoch, header.sequence, header.slices, header.length, header.tag)
        if fields != plain:
            raise RemoteProtocolError(f"malformed {header.kind.name}")

    def receive(self, kind: Kind, body: bytes) -> Agreement | None:
        """Take the body of a frame whose header passed; the agreement, when this was the last one.

        Raises AuthenticationFailed, PeerRefused (version), RemoteProtocolError.
        """
        match kind:
            case Kind.HELLO:
                self._answer_hello(body)
            case Kind.CHALLENGE:
                self._answer_challenge(body)
            case Kind.PROOF:
                self._check_proof(b"dialler", body)
                self._queue(Kind.WELCOME, self._proof(b"welcome"))
                return self._agreement()
            case Kind.WELCOME:
                self._check_proof(b"welcome", body)
                return self._agreement()
            case _:
                raise _refusal(body)
        return None

    def _answer_hello(self, body: bytes) -> None:
        protocol, purpose, _, version = _HELLO.unpack(body)
        self._their_version = _version_text(version)
        if protocol != PROTOCOL_VERSION:
            self._refuse(_BECAUSE_OF_VERSION, _version_mismatch(protocol, self._their_version))
        if body[3] or purpose not in {known.value for known in Purpose}:
            raise RemoteProtocolError("malformed HELLO")
        self._purpose = Purpose(purpose)
        ours = _CHALLENGE.pack(PROTOCOL_VERSION, self._nonce, _our_version(), bytes(_PROOF))[:-_PROOF]
        self._transcript = body + ours
        self._queue(Kind.CHALLENGE, ours + self._proof(b"listener"))
        self._expected = {Kind.PROOF, Kind.REFUSED}

    def _answer_challenge(self, body: bytes) -> None:
        protocol, _, version, proof = _CHALLENGE.unpack(body)
        self._their_version = _version_text(version)
        if protocol != PROTOCOL_VERSION or any(body[2:4]):
            raise RemoteProtocolError("malformed CHALLENGE")
        self._transcript += body[:-_PROOF]
        self._check_proof(b"listener", proof)
        self._queue(Kind.PROOF, self._proof(b"dialler"))
        self._expected = {Kind.WELCOME, Kind.REFUSED}

    def _proof(self, label: bytes) -> bytes:
        return hmac.digest(self._key, b"fleetchat 1 " + label + b"\0" + self._transcript, "sha256")

    def _check_proof(self, label: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(self._proof(label), proof):
            self._refuse(_BECAUSE_OF_KEY, _wrong_key())

    def _agreement(self) -> Agreement:
        return Agreement(
            self._purpose,
            self._their_version,
            dialler_key=self._proof(b"key of the dialler"),
            listener_key=self._proof(b"key of the listener"),
        )

    def _refuse(self, reason: int, error: FleetchatError) -> NoReturn:
        self._queue(Kind.REFUSED, _REFUSED.pack(PROTOCOL_VERSION, reason, _our_version()))
        raise error

    def _queue(self, kind: Kind, body: bytes) -> None:
        self.outgoing.append(pack_untagged(kind, len(body)) + NO_TAG + body)


def _refusal(body: bytes) -> FleetchatError:
    """The error that the other side's REFUSED stands for. Nothing authenticates it."""
    protocol, reason, version = _REFUSED.unpack(body)
    text = _version_text(version)
    if reason == _BECAUSE_OF_VERSION:
        return _version_mismatch(protocol, text)
    if reason == _BECAUSE_OF_KEY:
        return _wrong_key()
    return RemoteProtocolError(f"refused for an unknown reason {reason}")


def _version_mismatch(protocol: int, version: str) -> PeerRefused:
    theirs = f"{protocol} (fleetchat {version})" if version else f"{protocol}"
    return PeerRefused(
        f"protocol versions differ: ours is {PROTOCOL_VERSION} (fleetchat {__version__}), theirs is {theirs}",
        hint="install the same fleetchat version on all machines",
    )


def _wrong_key() -> AuthenticationFailed:
    return AuthenticationFailed("the two sides do not hold the same fleet key", hint=_KEY_HINT)


def _our_version() -> bytes:
    return __version__.encode("ascii")[:32]


def _version_text(padded: bytes) -> str:
    """A version from the network: visible ASCII only, padded with zeros."""
    version = padded.rstrip(b"\0")
    if not _VERSION_CHARACTERS.issuperset(version):
        raise RemoteProtocolError("the other side's version is not a version")
    return version.decode("ascii")
