"""Who is who: wrong keys, replays, reflections, versions, sizes."""

from __future__ import annotations

import struct

import pytest

from fleetchat import __version__
from fleetchat.errors import (
    AuthenticationFailed,
    FleetchatError,
    LocalProtocolError,
    PeerRefused,
    RemoteProtocolError,
)
from fleetchat.wire.frames import Kind, Ping
from fleetchat.wire.handshake import BODY_BYTES, MAX_HANDSHAKE_FRAME
from fleetchat.wire.header import HEADER_BYTES, NO_TAG, PROTOCOL_VERSION, pack_untagged
from fleetchat.wire.protocol import NEED_DATA, Connection, HandshakeDone
from fleetchat.wire.states import Purpose, State
from tests.wire.samples import KEY, joined

OTHER_KEY = bytes(32)


def dialler(key: bytes = KEY, purpose: Purpose = Purpose.CONTROL, nonce: bytes | None = None) -> Connection:
    return Connection.dialler(key, purpose=purpose, nonce=nonce)


def answer(connection: Connection, received: bytes) -> bytes:
    """Feed bytes that do not finish the handshake; what the connection writes back."""
    connection.receive_data(received)
    assert connection.next_event() is NEED_DATA
    return joined(connection.bytes_to_send())


def failure(connection: Connection, received: bytes) -> tuple[FleetchatError, bytes]:
    """Feed bytes that end the handshake; the error and what is written all the same."""
    connection.receive_data(received)
    with pytest.raises(FleetchatError) as caught:
        connection.next_event()
    return caught.value, joined(connection.bytes_to_send())


def test_both_sides_agree_in_four_frames() -> None:
    one, two = dialler(purpose=Purpose.DATA), Connection.listener(KEY)
    proof = answer(one, answer(two, joined(one.start())))
    two.receive_data(proof)
    assert two.next_event() == HandshakeDone(Purpose.DATA, __version__)
    one.receive_data(joined(two.bytes_to_send()))
    assert one.next_event() == HandshakeDone(Purpose.DATA, __version__)
    assert one.state is two.state is State.ATTACHING
    assert two.bytes_to_send() == one.bytes_to_send() == []


def test_a_listener_says_nothing_first() -> None:
    assert Connection.listener(KEY).start() == []


def test_the_handshake_works_byte_by_byte() -> None:
    one, two = dialler(), Connection.listener(KEY)
    outgoing, receiver, other = joined(one.start()), two, one
    done = []
    while outgoing:
        for byte in outgoing:
            receiver.receive_data(bytes([byte]))
            if isinstance(receiver.next_event(), HandshakeDone):
                done.append(receiver)
        outgoing, receiver, other = joined(receiver.bytes_to_send()), other, receiver
    assert done == [two, one]


def test_a_listener_with_another_key_is_found_out_by_the_dialler_and_told() -> None:
    one, two = dialler(), Connection.listener(OTHER_KEY)
    error, refused = failure(one, answer(two, joined(one.start())))
    assert isinstance(error, AuthenticationFailed)
    assert "key" in (error.hint or "")
    told, nothing = failure(two, refused)
    assert isinstance(told, AuthenticationFailed)
    assert nothing == b""


def test_a_dialler_without_the_key_that_goes_on_is_refused() -> None:
    one, two = dialler(), Connection.listener(KEY)
    answer(two, joined(one.start()))
    forged = pack_untagged(Kind.PROOF, 32) + NO_TAG + bytes(32)
    error, refused = failure(two, forged)
    assert isinstance(error, AuthenticationFailed)
    assert refused[5] == Kind.REFUSED
    told, _ = failure(one, refused)
    assert isinstance(told, AuthenticationFailed)


def test_a_recorded_handshake_cannot_be_replayed_to_the_listener() -> None:
    one, two = dialler(), Connection.listener(KEY)
    hello = joined(one.start())
    proof = answer(one, answer(two, hello))
    again = Connection.listener(KEY)
    answer(again, hello)
    assert isinstance(failure(again, proof)[0], AuthenticationFailed)


def test_a_recorded_handshake_cannot_be_replayed_to_the_dialler() -> None:
    one, two = dialler(), Connection.listener(KEY)
    challenge = answer(two, joined(one.start()))
    again = dialler()
    again.start()
    assert isinstance(failure(again, challenge)[0], AuthenticationFailed)


def test_a_recorded_welcome_cannot_be_replayed() -> None:
    nonce = b"n" * 32
    one, two = dialler(nonce=nonce), Connection.listener(KEY)
    two.receive_data(answer(one, answer(two, joined(one.start()))))
    assert isinstance(two.next_event(), HandshakeDone)
    welcome = joined(two.bytes_to_send())
    again = dialler(nonce=nonce)
    answer(again, answer(Connection.listener(KEY), joined(again.start())))
    assert isinstance(failure(again, welcome)[0], AuthenticationFailed)


def test_the_listeners_own_proof_reflected_is_no_proof() -> None:
    two = Connection.listener(KEY)
    challenge = answer(two, joined(dialler(OTHER_KEY).start()))
    reflected = pack_untagged(Kind.PROOF, 32) + NO_TAG + challenge[-32:]
    assert isinstance(failure(two, reflected)[0], AuthenticationFailed)


def test_a_dialler_refuses_its_own_hello() -> None:
    one = dialler()
    error, _ = failure(one, joined(one.start()))
    assert isinstance(error, RemoteProtocolError)


def test_a_purpose_changed_on_the_way_is_found_out() -> None:
    one, two = dialler(purpose=Purpose.CONTROL), Connection.listener(KEY)
    hello = bytearray(joined(one.start()))
    hello[HEADER_BYTES + 2] = Purpose.DATA
    assert isinstance(failure(one, answer(two, bytes(hello)))[0], AuthenticationFailed)


@pytest.mark.parametrize("where", range(4))
def test_every_flipped_bit_of_a_handshake_frame_ends_it(where: int) -> None:
    """HELLO (found out by the dialler), CHALLENGE, PROOF, WELCOME: one bit in each byte."""
    one, two = dialler(nonce=b"d" * 32), Connection.listener(KEY, nonce=b"l" * 32)
    frames = [joined(one.start())]
    frames.append(answer(two, frames[0]))
    frames.append(answer(one, frames[1]))
    two.receive_data(frames[2])
    two.next_event()
    frames.append(joined(two.bytes_to_send()))
    for byte in range(len(frames[where])):
        damaged = bytearray(frames[where])
        damaged[byte] ^= 1 << byte % 8
        one, two = dialler(nonce=b"d" * 32), Connection.listener(KEY, nonce=b"l" * 32)
        one.start()
        with pytest.raises(FleetchatError):
            exchange(one, two, [*frames[:where], bytes(damaged), *frames[where + 1 :]])


def exchange(one: Connection, two: Connection, frames: list[bytes]) -> None:
    """Carry frames to both; what they write is only compared, so a difference on the way shows."""
    for frame, receiver in zip(frames, (two, one, two, one), strict=True):
        receiver.receive_data(frame)
        receiver.receive_data(b"") if frame is frames[-1] else None
        receiver.next_event()
        receiver.bytes_to_send()


def test_another_protocol_version_is_refused_with_both_versions() -> None:
    two = Connection.listener(KEY)
    hello = bytearray(joined(dialler().start()))
    hello[4] = 9
    error, refused = failure(two, bytes(hello))
    assert type(error) is PeerRefused
    assert "ours is 1" in error.message
    assert "theirs is 9" in error.message
    one = dialler()
    one.start()
    told, _ = failure(one, refused)
    assert type(told) is PeerRefused
    assert f"theirs is 1 (fleetchat {__version__})" in told.message


def test_a_refusal_of_a_later_version_is_understood() -> None:
    one = dialler()
    one.start()
    body = struct.pack("<HBx32s", 7, 1, b"9.9.9")
    header = bytearray(pack_untagged(Kind.REFUSED, len(body)) + NO_TAG)
    header[4] = 7
    error, _ = failure(one, bytes(header) + body)
    assert type(error) is PeerRefused
    assert "theirs is 7 (fleetchat 9.9.9)" in error.message


def test_a_version_text_from_a_stranger_cannot_write_on_the_terminal() -> None:
    one = dialler()
    one.start()
    body = struct.pack("<HBx32s", 7, 1, b"\x1b[31mred")
    error, _ = failure(one, pack_untagged(Kind.REFUSED, len(body)) + NO_TAG + body)
    assert error.message == "the other side's version is not a version"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.HELLO,)])
def test_a_listener_accepts_nothing_before_hello(kind: Kind) -> None:
    length = BODY_BYTES.get(kind, 0)
    error, written = failure(Connection.listener(KEY), pack_untagged(kind, length) + NO_TAG)
    assert type(error) is RemoteProtocolError
    assert written == b""


@pytest.mark.parametrize("length", [0, BODY_BYTES[Kind.HELLO] - 1, BODY_BYTES[Kind.HELLO] + 1, 2**32 - 1])
def test_handshake_frames_have_one_size(length: int) -> None:
    error, _ = failure(Connection.listener(KEY), pack_untagged(Kind.HELLO, length) + NO_TAG)
    assert error.message == "malformed HELLO"


@pytest.mark.parametrize("fields", [{"flags": 1}, {"epoch": 1}, {"sequence": 1}, {"slices": 1}])
def test_handshake_headers_have_no_fields(fields: dict[str, int]) -> None:
    error, _ = failure(
        Connection.listener(KEY), pack_untagged(Kind.HELLO, BODY_BYTES[Kind.HELLO], **fields) + NO_TAG
    )
    assert error.message == "malformed HELLO"


def test_handshake_frames_are_small() -> None:
    assert max(BODY_BYTES.values()) + HEADER_BYTES <= MAX_HANDSHAKE_FRAME == 1024
    assert PROTOCOL_VERSION == 1


def test_a_frame_that_comes_with_the_proof_is_authenticated_like_any_other() -> None:
    one, two = dialler(), Connection.listener(KEY)
    proof = answer(one, answer(two, joined(one.start())))
    two.receive_data(proof + pack_untagged(Kind.PING, 8) + NO_TAG + bytes(8))
    assert isinstance(two.next_event(), HandshakeDone)
    with pytest.raises(RemoteProtocolError, match="wrong tag"):
        two.next_event()


def test_two_links_with_the_same_key_have_different_connection_keys() -> None:
    wires = []
    for _ in range(2):
        one, two = dialler(), Connection.listener(KEY)
        two.receive_data(answer(one, answer(two, joined(one.start()))))
        two.next_event()
        one.receive_data(joined(two.bytes_to_send()))
        one.next_event()
        wires.append(joined(one.send(Ping(1))))
    assert wires[0] != wires[1]


def test_a_short_key_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="at least 16 bytes"):
        Connection.listener(b"short")
