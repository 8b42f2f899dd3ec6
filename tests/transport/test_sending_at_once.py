"""Frames that leave in the turn of the event loop that sends them, over real sockets."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from fleetchat.errors import LocalProtocolError, PeerLost
from fleetchat.ids import SessionId
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Close, Forward, Frame, StatsRequest
from tests.transport.test_link import Streams, control, large_forward, upstream
from tests.wire.samples import EPOCH

pytestmark = pytest.mark.trio


def socket_streams() -> Streams:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
    one.setblocking(False)
    two.setblocking(False)
    first, second = trio.socket.from_stdlib_socket(one), trio.socket.from_stdlib_socket(two)
    return trio.SocketStream(first), trio.SocketStream(second)


def closes(count: int) -> list[Frame]:
    return [Close(EPOCH, SessionId(number)) for number in range(count)]


async def received(link: Link, count: int) -> list[Frame]:
    return [await link.receive() for _ in range(count)]


async def test_a_small_frame_leaves_without_a_turn_of_the_event_loop() -> None:
    _, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener):
        with trio.testing.assert_no_checkpoints():
            await dialler.send(closes(1)[0])
            assert dialler.send_nowait(closes(2)[1])
        assert not dialler.unfinished
        assert await received(listener, 2) == closes(2)


async def test_what_the_socket_does_not_take_goes_before_anything_else() -> None:
    large, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener), trio.open_nursery() as nursery:
        assert dialler.send_nowait(large)
        assert dialler.unfinished
        assert not dialler.send_nowait(closes(1)[0])
        nursery.start_soon(dialler.send, closes(1)[0])
        first = await listener.receive()
        assert isinstance(first, Forward)
        assert first.hidden is not None
        assert large.hidden is not None
        assert first.hidden.tobytes() == large.hidden.tobytes()
        assert await listener.receive() == closes(1)[0]
        assert not dialler.unfinished


async def test_flush_finishes_what_was_begun() -> None:
    large, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener), trio.open_nursery() as nursery:
        assert dialler.send_nowait(large)
        nursery.start_soon(dialler.flush)
        assert isinstance(await listener.receive(), Forward)
        await trio.testing.wait_all_tasks_blocked()
        assert not dialler.unfinished
        assert dialler.send_nowait(closes(1)[0])
        assert await listener.receive() == closes(1)[0]


async def test_while_somebody_sends_nothing_is_sent_at_once() -> None:
    large, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener), trio.open_nursery() as nursery:
        nursery.start_soon(dialler.send, large)
        await trio.testing.wait_all_tasks_blocked()
        assert not dialler.send_nowait(closes(1)[0])
        assert isinstance(await listener.receive(), Forward)
        await trio.testing.wait_all_tasks_blocked()
        assert dialler.send_nowait(closes(1)[0])
        assert await listener.receive() == closes(1)[0]


async def test_only_sockets_take_frames_at_once() -> None:
    _, limits = large_forward()
    async with upstream(limits) as (dialler, _):
        assert not dialler.send_nowait(closes(1)[0])


async def test_what_must_not_be_sent_is_refused_and_nothing_was_sent() -> None:
    async with control(socket_streams) as (dialler, listener):
        with pytest.raises(LocalProtocolError):
            dialler.send_nowait(closes(1)[0])
        assert dialler.send_nowait(StatsRequest())
        assert await listener.receive() == StatsRequest()


async def test_a_link_that_was_closed_takes_nothing() -> None:
    _, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener):
        await dialler.aclose()
        with pytest.raises(PeerLost):
            dialler.send_nowait(closes(1)[0])
        with pytest.raises(PeerLost):
            await listener.receive()


async def test_another_thread_sends_among_tasks_that_send_and_ping() -> None:
    """The listener checks the tag of every frame, so two frames in one another would end the link."""
    count = 300
    _, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, listener), trio.open_nursery() as nursery:
        refused: list[Frame] = []

        def from_a_thread() -> None:
            for frame in closes(count):
                while not dialler.send_nowait(frame):
                    refused.append(frame)  # somebody else is sending

        async def from_a_task() -> None:
            for number in range(count):
                await dialler.send(Close(EPOCH, SessionId(1000 + number)))
                await dialler.ping()

        nursery.start_soon(trio.to_thread.run_sync, from_a_thread)
        nursery.start_soon(from_a_task)
        came = [frame.session for frame in await received(listener, 2 * count) if isinstance(frame, Close)]
        assert [session for session in came if session < 1000] == list(range(count))
        assert [session for session in came if session >= 1000] == list(range(1000, 1000 + count))


async def test_a_closed_link_takes_nothing_from_another_thread() -> None:
    _, limits = large_forward()
    async with upstream(limits, socket_streams) as (dialler, _):
        await dialler.aclose()
        with pytest.raises(PeerLost, match="closed on this side"):
            await trio.to_thread.run_sync(dialler.send_nowait, closes(1)[0])
