"""One link as a state machine: bytes in, events out, no socket.

LocalProtocolError means that we broke a rule (the link stays usable: nothing was sent), RemoteProtocolError
that they did. After the latter, and after a failed handshake, the connection is dead and repeats its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from fleetchat.errors import (
    FleetchatError,
    LocalProtocolError,
    PeerRefused,
    RemoteProtocolError,
)
from fleetchat.wire.buffer import ReceiveBuffer
from fleetchat.wire.codec import check_header, decode, encode
from fleetchat.wire.frames import INITIAL_LIMITS, Frame, Goodbye, Limits, Open
from fleetchat.wire.handshake import Agreement, Handshake
from fleetchat.wire.header import (
    HEADER_BYTES,
    PROTOCOL_VERSION,
    UNTAGGED_BYTES,
    Header,
    Tagger,
    check_magic,
    pack_untagged,
    parse_header,
)
from fleetchat.wire.kinds import Kind
from fleetchat.wire.states import STEADY, Purpose, Side, State, first_state, is_legal, next_state

Buffers = list[bytes | memoryview]


class NeedData(Enum):
    """Nothing complete has arrived."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class HandshakeDone:
    """Both sides proved the key. Frames may follow."""

    purpose: Purpose
    their_version: str  # of fleetchat


@dataclass(frozen=True, slots=True)
class Closed:
    """The other side ended the link between two frames."""


Event = Frame | HandshakeDone | Closed | NeedData


class Connection:
    """Sans-IO, one per TCP link. Every buffer that a method returns must be written, in order."""

    def __init__(self, side: Side, handshake: Handshake) -> None:
        self._side = side
        self._their_side = side.other
        self._handshake: Handshake | None = handshake
        self._state = State.HANDSHAKE
        self._limits = INITIAL_LIMITS
        self._buffer = ReceiveBuffer()
        self._end_of_file = False
        self._error: FleetchatError | None = None
        self._goodbye: set[Side] = set()
        self._opened: Open | None = None
        self._header: Header | None = None  # of the frame whose body is being collected
        self._body = bytearray()
        self._filled = 0
        self.last_frame_bytes = 0  # of the last frame that `next_event` returned, with its header
        self._running: blake2b | None = None  # hash of that frame
        self._our_tags = self._their_tags = _no_tags()

    @classmethod
    def dialler(cls, key: bytes, *, purpose: Purpose, nonce: bytes | None = None) -> Connection:
        """The side that connects. `key` has at least 16 bytes; `nonce` is for tests."""
        return cls(Side.DIALLER, Handshake(Side.DIALLER, key, purpose, nonce))

    @classmethod
    def listener(cls, key: bytes, *, nonce: bytes | None = None) -> Connection:
        """The side that is connected to; it learns the purpose from HELLO."""
        return cls(Side.LISTENER, Handshake(Side.LISTENER, key, nonce=nonce))

    @property
    def state(self) -> State:
        return self._state

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def mid_frame(self) -> bool:
        """True while a frame has begun and is not complete."""
        return self._header is not None or len(self._buffer) > 0

    @property
    def bytes_missing(self) -> int:
        """Bytes that the frame in progress still needs at least; a whole header between two frames."""
        if self._header is None:
            return max(HEADER_BYTES - len(self._buffer), 0)
        return len(self._body) - self._filled - len(self._buffer)

    @property
    def frame_bytes(self) -> int:
        """Size of the body in progress; 0 between two frames."""
        return len(self._body)

    @property
    def may_send(self) -> bool:
        """False once the link failed or we said GOODBYE."""
        return self._error is None and self._side not in self._goodbye and self._state is not State.HANDSHAKE

    def start(self) -> Buffers:
        """What to write first: the dialler's HELLO, nothing for the listener."""
        if self._handshake is not None and self._side is Side.DIALLER:
            self._handshake.start()
        return self.bytes_to_send()

    def bytes_to_send(self) -> Buffers:
        """Answers of the handshake that `next_event` produced, also when it raised."""
        if self._handshake is None:
            return []
        outgoing: Buffers = list(self._handshake.outgoing)
        self._handshake.outgoing.clear()
        if self._state is not State.HANDSHAKE:
            self._handshake = None
        return outgoing

    def set_limits(self, limits: Limits) -> None:
        """Agree on what data frames may hold: after OPEN or ATTACH, before the first of them."""
        self._limits = limits

    def receive_data(self, chunk: bytes | bytearray | memoryview) -> None:
        """Bytes as they arrived; an empty chunk is the end of the file."""
        if self._error is not None:
            return
        if not chunk:
            self._end_of_file = True
        elif self._end_of_file:
            raise LocalProtocolError("data after the end of the file")
        else:
            self._buffer.append(chunk if isinstance(chunk, bytes) else bytes(chunk))

    def next_event(self) -> Event:
        """The next thing that happened. Raises RemoteProtocolError, AuthenticationFailed, PeerRefused."""
        if self._error is not None:
            raise self._error
        if self._header is None and not self._end_of_file and not len(self._buffer):
            return NEED_DATA
        try:
            return self._whole_batch() or self._next_event()
        except (RemoteProtocolError, PeerRefused) as error:
            self._error = error
            self._forget_frame()
            self._buffer.clear()
            raise

    def send(self, frame: Frame) -> Buffers:
        """Buffers to write, in order; arrays are not copied, so they must not change before that.

        Raises LocalProtocolError when the frame is not legal here and now; then nothing was sent.
        """
        if self._error is not None or self._side in self._goodbye:
            raise LocalProtocolError("the link has ended")
        encoded = encode(frame, self._limits)
        if not is_legal(self._state, self._side, encoded.kind):
            raise LocalProtocolError(f"{encoded.kind.name} must not be sent on {self._state.value}")
        kind, flags, epoch, sequence, slices, body = encoded
        if kind not in STEADY:
            self._check_reopening(frame, LocalProtocolError)
        length = sum(map(len, body))
        untagged = pack_untagged(kind, length, flags=flags, epoch=epoch, sequence=sequence, slices=slices)
        tag = self._our_tags.begin(untagged)
        for buffer in body:
            tag.update(buffer)
        if kind not in STEADY:
            self._advance(self._side, kind, frame)
        return [untagged + tag.digest(), *[buffer for buffer in body if buffer]]

    def _whole_batch(self) -> Frame | None:
        """A FORWARD or RESULT that came in one piece, with nothing behind it: the step of every token.

        Checked as any frame is. None: it is something else, or its tag is wrong.
        """
        encoded = self._buffer.sole_chunk
        if encoded is None or len(encoded) <= HEADER_BYTES or self._header is not None:
            return None
        header = parse_header(encoded)
        complete = header.length == len(encoded) - HEADER_BYTES
        if not complete or header.kind not in STEADY or self._state is State.HANDSHAKE:
            return None
        self._check_frame(header)
        if not self._their_tags.accepts(encoded):
            return None
        self._buffer.clear()
        frame = decode(header, bytearray(memoryview(encoded)[HEADER_BYTES:]), self._limits)
        self.last_frame_bytes = len(encoded)
        return frame

    def _next_event(self) -> Event:
        while True:
            header = self._header or self._begin_frame()
            if header is None or (self._filled < header.length and not self._collect_body()):
                return self._out_of_data()
            body = self._take_body(header)
            if self._state is not State.HANDSHAKE:
                return self._finish_frame(header, body)
            assert self._handshake is not None
            agreement = self._handshake.receive(header.kind, bytes(body))
            if agreement is not None:
                return self._finish_handshake(agreement)

    def _begin_frame(self) -> Header | None:
        encoded = self._buffer.take(HEADER_BYTES)
        if encoded is None:
            check_magic(self._buffer.peek(4))
            return None
        header = parse_header(encoded)
        if self._state is State.HANDSHAKE:
            assert self._handshake is not None
            self._handshake.check_header(header)
        else:
            self._check_frame(header)
            self._running = self._their_tags.begin(encoded[:UNTAGGED_BYTES])
        self._header = header
        self._body = bytearray(header.length)
        self._filled = 0
        return header

    def _check_frame(self, header: Header) -> None:
        """Everything that is known to be wrong before the body is allocated."""
        if header.version != PROTOCOL_VERSION:
            raise RemoteProtocolError(f"frame of protocol version {header.version}")
        if self._their_side in self._goodbye:
            raise RemoteProtocolError(f"{header.kind.name} after GOODBYE")
        if not is_legal(self._state, self._their_side, header.kind):
            raise RemoteProtocolError(f"{header.kind.name} must not come on {self._state.value}")
        check_header(header, self._limits)

    def _collect_body(self) -> bool:
        target = memoryview(self._body)[self._filled :]
        count = self._buffer.read_into(target)
        if self._running is not None:
            self._running.update(target[:count])
        self._filled += count
        return self._filled == len(self._body)

    def _take_body(self, header: Header) -> bytearray:
        if self._running is not None and not compare_digest(self._running.digest(), header.tag):
            raise RemoteProtocolError(
                f"{header.kind.name} with a wrong tag: the link is damaged or somebody interferes"
            )
        body = self._body
        self._forget_frame()
        return body

    def _forget_frame(self) -> None:
        self._header = None
        self._body = bytearray()
        self._filled = 0
        self._running = None

    def _finish_frame(self, header: Header, body: bytearray) -> Frame:
        frame = decode(header, body, self._limits)
        if header.kind not in STEADY:
            self._check_reopening(frame, RemoteProtocolError)
            self._advance(self._their_side, header.kind, frame)
        self.last_frame_bytes = HEADER_BYTES + header.length
        return frame

    def _finish_handshake(self, agreement: Agreement) -> HandshakeDone:
        keys = (agreement.dialler_key, agreement.listener_key)
        self._our_tags = Tagger(keys[self._side], self._side)
        self._their_tags = Tagger(keys[self._their_side], self._their_side)
        self._state = first_state(agreement.purpose)
        return HandshakeDone(agreement.purpose, agreement.their_version)

    def _out_of_data(self) -> NeedData | Closed:
        if not self._end_of_file:
            return NEED_DATA
        if self.mid_frame:
            raise RemoteProtocolError("the link ended inside a frame")
        return Closed()

    def _check_reopening(self, frame: Frame, error: type[FleetchatError]) -> None:
        """OPEN again on the same link replaces the chain by a later epoch of itself."""
        if isinstance(frame, Open) and self._opened is not None:
            if frame.chain != self._opened.chain:
                raise error("a second OPEN on a link must name the same chain")
            if frame.epoch <= self._opened.epoch:
                raise error(f"OPEN with epoch {frame.epoch} after epoch {self._opened.epoch}")

    def _advance(self, sender: Side, kind: Kind, frame: Frame) -> None:
        self._state = next_state(self._state, kind, frame)
        if isinstance(frame, Open):
            self._opened = frame
        elif isinstance(frame, Goodbye):
            self._goodbye.add(sender)


def _no_tags() -> Tagger:
    """Stands in until the handshake is done; nothing is tagged with it."""
    return Tagger(bytes(32), 0)
