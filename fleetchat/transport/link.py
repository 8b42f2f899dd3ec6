"""One authenticated link over a trio stream: moves bytes, keeps deadlines, measures round trips.

Two truths about cancelling. Bytes read reach the parser with no await in between, so a cancelled `receive`
loses nothing. A frame that was begun must be finished: a `send` that is cancelled half-way closes the link.

A frame that the socket takes at once is sent without a turn of the event loop, and from whatever thread
has made it: a turn costs 0.1 to 0.3 ms on every leg of every token. Reading asks the socket directly as
well, where the platform lets us.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import NoReturn

import trio

from fleetchat.errors import (
    FleetchatError,
    PeerLost,
    PeerRefused,
    ProtocolError,
)
from fleetchat.ids import Address
from fleetchat.wire.frames import Frame, Limits, Ping, Pong
from fleetchat.wire.handshake import MAX_HANDSHAKE_FRAME
from fleetchat.wire.protocol import NEED_DATA, Buffers, Closed, Connection, HandshakeDone
from fleetchat.wire.states import Purpose

CONNECT_DEADLINE = 10.0  # seconds, also below
HANDSHAKE_DEADLINE = 5.0
MID_FRAME_DEADLINE = 10.0  # without a byte; a whole frame gets more by its size
SLOWEST_RATE = 128 * 1024  # bytes a second: a frame that comes slower than this is a stalled one
PONG_DEADLINE = 1.0  # the buffers of a peer that reads nothing at all are full

_JOINED = 64 * 1024  # up to this size header and body leave in one segment and one system call
_LEAST_READ = 16 * 1024
_MOST_READ = 1024 * 1024
_ROUND_TRIPS_KEPT = 64
_PINGS_KEPT = 64  # pings without answer, and pings to be answered


class Link:
    """Made by `dial` and `accept`. One task receives; any number of tasks send.

    PINGs are answered and PONGs are taken inside `receive`, so a link is pinged and measured only while a
    task receives. `round_trips` holds the last round trips in µs; `last_heard` is a trio clock time.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        connection: Connection,
        peer_address: Address | None,
        mid_frame_deadline: float,
    ) -> None:
        self.peer_address = peer_address
        self.purpose = Purpose.CONTROL
        self.their_version = ""  # of fleetchat
        self.round_trips: deque[int] = deque(maxlen=_ROUND_TRIPS_KEPT)
        self.last_heard = trio.current_time()
        self.bytes_received = 0
        self.bytes_sent = 0
        self._lost: str | None = None  # why the link ended, as its tasks are told
        self._stream = stream
        self._connection = connection
        self._mid_frame_deadline = mid_frame_deadline
        self._frame_waited = 0.0  # seconds, for the frame in progress
        self._sending = trio.Lock()
        self._guard = threading.Lock()  # of what `send_nowait` touches in other threads than the event loop's
        self._turn_taken = False  # a task of the event loop sends
        self._rest = memoryview(b"")  # of a frame that `send_nowait` began
        self._takes_bytes = isinstance(stream, trio.SocketStream) and sys.platform != "win32"
        self._pings: dict[int, int] = {}  # token -> ns when it was sent
        self._next_ping = 0
        self._pongs_due: deque[int] = deque(maxlen=_PINGS_KEPT)

    def __str__(self) -> str:
        return "the peer" if self.peer_address is None else str(self.peer_address)

    @property
    def ended(self) -> bool:
        """True once the link was lost or closed."""
        return self._lost is not None

    @property
    def last_frame_bytes(self) -> int:
        """Size of the frame that `receive` returned last, with its header."""
        return self._connection.last_frame_bytes

    @property
    def median_round_trip_us(self) -> int:
        """Median of `round_trips`; 0 while nothing was measured."""
        return round(statistics.median(self.round_trips)) if self.round_trips else 0

    def set_limits(self, limits: Limits) -> None:
        """Agree on the size of data frames: after OPEN or ATTACH, before the first of them."""
        self._connection.set_limits(limits)

    async def send(self, frame: Frame, *, shielded: bool = False) -> None:
        """Write one frame. Arrays in it must not change before this returns.

        `shielded` finishes a frame also when the caller is cancelled. Raises LocalProtocolError (nothing was
        sent, the link is usable), PeerLost (what they said last may still be received; the owner closes the
        link).
        """
        await self._take_turn(shielded)
        try:
            self._check_alive()
            await self._write(self._connection.send(frame), shielded)
            await self._write_pongs()
        finally:
            self._end_turn()

    def send_nowait(self, frame: Frame) -> bool:
        """Send one frame here and now, if nobody is sending and the socket takes it. From any thread.

        False: nothing was sent, call `send`; so it is too while another frame waits for its turn. When the
        socket took a part only, `unfinished` is True: the rest goes before anything else, with the next
        `send` or with `flush`. Raises as `send`.
        """
        with self._guard:
            self._check_alive()
            if self._turn_taken or self._sending.locked() or self._rest or not self._takes_bytes:
                return False
            whole = b"".join(self._connection.send(frame))
            self.bytes_sent += len(whole)
            self._rest = memoryview(whole)[self._write_nowait(whole) :]
            return True

    @property
    def unfinished(self) -> bool:
        """Whether a frame of `send_nowait` is not wholly written."""
        return len(self._rest) > 0

    async def flush(self) -> None:
        """Write what `send_nowait` left over. Raises PeerLost."""
        await self._take_turn(shielded=False)
        try:
            self._check_alive()
            await self._write_rest(shielded=False)
        finally:
            self._end_turn()

    async def receive(self) -> Frame:
        """The next frame but PING and PONG. Idle time is unlimited; a frame that has begun must go on.

        Raises PeerLost (end of file, reset, closed here, stalled inside a frame), RemoteProtocolError; the
        link is closed then.
        """
        while True:
            try:
                event = self._connection.next_event()
            except (ProtocolError, PeerRefused) as error:
                await self._end("broke the protocol")
                raise self._located(error) from None
            if event is NEED_DATA:
                await self._read()
                continue
            self._frame_waited = 0.0
            if isinstance(event, Closed):
                await self._lose("closed the link")
            elif isinstance(event, Ping):
                self._pongs_due.append(event.token)
                await self._answer_pings()
            elif isinstance(event, Pong):
                self._take_pong(event)
            else:
                assert not isinstance(event, HandshakeDone)
                return event

    async def ping(self) -> None:
        """Send one PING; its round trip appears in `round_trips` when `receive` sees the answer.

        Does nothing after our GOODBYE. Raises PeerLost.
        """
        await self._take_turn(shielded=False)
        try:
            self._check_alive()
            if not self._connection.may_send:
                return
            token = self._next_ping
            self._next_ping += 1
            if len(self._pings) >= _PINGS_KEPT:
                del self._pings[next(iter(self._pings))]
            self._pings[token] = time.perf_counter_ns()
            await self._write(self._connection.send(Ping(token)))
            await self._write_pongs()
        finally:
            self._end_turn()

    async def keep_pinging(self, interval: float) -> NoReturn:
        """Ping every `interval` seconds until cancelled, or until PeerLost."""
        while True:
            await self.ping()
            await trio.sleep(interval)

    async def aclose(self) -> None:
        """Close now, without GOODBYE. Tasks in `send` and `receive` get PeerLost. Never blocks."""
        with self._guard:  # its number may be another socket's in a moment
            self._lost = self._lost or "can no longer be reached: the link was closed on this side"
        await trio.aclose_forcefully(self._stream)

    async def shake_hands(self, deadline: float) -> None:
        """The work of `dial` and `accept`; see there what it raises."""
        with trio.move_on_after(deadline) as scope:
            await self._write(self._connection.start())
            while not await self._step_handshake():
                await self._read_chunk(MAX_HANDSHAKE_FRAME)
        if scope.cancelled_caught:
            await self._lose(f"did not finish the handshake within {deadline:g} s")

    async def _step_handshake(self) -> bool:
        """True when it is done."""
        try:
            event = self._connection.next_event()
        except (ProtocolError, PeerRefused) as error:
            with suppress(PeerLost):  # they may be gone already; the error is what matters
                await self._write(self._connection.bytes_to_send())
            await self._end("was refused")
            raise self._located(error) from None
        await self._write(self._connection.bytes_to_send())
        if isinstance(event, HandshakeDone):
            self.purpose = event.purpose
            self.their_version = event.their_version
            return True
        if event is not NEED_DATA:
            await self._lose("closed the link during the handshake")
        return False

    async def _read(self) -> None:
        """Wait for bytes: without limit between two frames, within a deadline inside one."""
        if not self._connection.mid_frame:
            await self._read_chunk(_LEAST_READ)
            return
        whole = self._mid_frame_deadline + self._connection.frame_bytes / SLOWEST_RATE
        patience = min(self._mid_frame_deadline, max(whole - self._frame_waited, 0))
        started = trio.current_time()
        with trio.move_on_after(patience) as scope:
            await self._read_chunk(self._read_size())
        self._frame_waited += trio.current_time() - started
        if scope.cancelled_caught:
            await self._lose("stalled inside a frame")

    def _read_size(self) -> int:
        return min(max(self._connection.bytes_missing, _LEAST_READ), _MOST_READ)

    async def _read_chunk(self, most: int) -> None:
        try:
            chunk = await self._receive_some(most)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            await self._lose("broke the link")
        if not chunk and self._connection.mid_frame:
            await self._lose("broke the link inside a frame")
        self._connection.receive_data(chunk)
        self.bytes_received += len(chunk)
        self.last_heard = trio.current_time()

    async def _receive_some(self, most: int) -> bytes:
        """What the stream would do, with a fifth of the steps: this is on every leg of every token."""
        while self._takes_bytes and self._lost is None:
            assert isinstance(self._stream, trio.SocketStream)
            await trio.lowlevel.wait_readable(self._stream.socket)
            try:
                return os.read(self._stream.socket.fileno(), most)
            except BlockingIOError:
                continue  # somebody else's waking
        return bytes(await self._stream.receive_some(most))

    async def _take_turn(self, shielded: bool) -> None:
        """Acquire the lock for sending; a free one without a turn of the event loop."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(shield=shielded):
                await self._sending.acquire()
        with self._guard:  # after the frame that another thread may be sending
            self._turn_taken = True

    def _end_turn(self) -> None:
        self._turn_taken = False
        self._sending.release()

    async def _write(self, buffers: Buffers, shielded: bool = False) -> None:
        """Write all buffers, or end the link.

        A link that broke is not closed here: what the other side said last may still be read.
        """
        if not buffers:
            return
        self._check_alive()
        await self._write_rest(shielded)
        size = sum(len(buffer) for buffer in buffers)
        for buffer in [b"".join(buffers)] if size <= _JOINED else buffers:
            taken = self._write_nowait(buffer)
            if taken < len(buffer):
                await self._send_all(memoryview(buffer)[taken:], shielded)
        self.bytes_sent += size

    async def _write_rest(self, shielded: bool) -> None:
        if self._rest:
            rest, self._rest = self._rest, memoryview(b"")
            await self._send_all(rest, shielded)

    async def _send_all(self, data: memoryview, shielded: bool) -> None:
        """Write all of it, or end the link."""
        try:
            with trio.CancelScope(shield=shielded):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._lost = self._lost or "broke the link"
            raise PeerLost(f"{self} {self._lost}") from None
        except BaseException:
            await self._end("can no longer be reached: sending to it was cancelled half-way")
            raise

    def _write_nowait(self, buffer: bytes | memoryview) -> int:
        """Give the socket what it takes without waiting; how many bytes that was.

        Whoever calls this holds the lock for sending. What is wrong with the socket is told by the stream,
        which is asked next.
        """
        if not self._takes_bytes:
            return 0
        assert isinstance(self._stream, trio.SocketStream)
        try:
            return os.write(self._stream.socket.fileno(), buffer)
        except OSError:
            return 0

    async def _answer_pings(self) -> None:
        """Called by the reader. When somebody is sending, that task answers as soon as its frame is out."""
        if self._sending.locked():
            return
        await self._take_turn(shielded=True)
        try:
            with trio.move_on_after(PONG_DEADLINE, shield=True) as scope, suppress(PeerLost):
                await self._write_pongs()
        finally:
            self._end_turn()
        if scope.cancelled_caught:
            await self._lose("does not read")

    async def _write_pongs(self) -> None:
        while self._pongs_due and self._connection.may_send:
            await self._write(self._connection.send(Pong(self._pongs_due.popleft())))

    def _take_pong(self, pong: Pong) -> None:
        sent = self._pings.pop(pong.token, None)
        if sent is not None:
            self.round_trips.append((time.perf_counter_ns() - sent) // 1000)

    def _check_alive(self) -> None:
        if self._lost is not None:
            raise PeerLost(f"{self} {self._lost}")

    async def _lose(self, what: str) -> NoReturn:
        await self._end(what)
        raise PeerLost(f"{self} {self._lost}") from None

    async def _end(self, what: str) -> None:
        """Close, also when cancelled; the first reason is kept."""
        self._lost = self._lost or what
        with trio.CancelScope(shield=True):
            await self.aclose()

    def _located(self, error: FleetchatError) -> FleetchatError:
        return type(error)(f"{self}: {error.message}", hint=error.hint)
