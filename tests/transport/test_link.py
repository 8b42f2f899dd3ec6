"""Links over streams in memory: order, deadlines, cancelling, pings, and how a link ends."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trio
import trio.testing

from fleetchat import __version__
from fleetchat.errors import (
    AuthenticationFailed,
    FleetchatError,
    LocalProtocolError,
    PeerLost,
    PeerRefused,
    RemoteProtocolError,
)
from fleetchat.ids import Address, BatchSequence, SessionId
from fleetchat.transport.dialling import accept, dial_over
from fleetchat.transport.link import Link
from fleetchat.wire.frames import (
    Attach,
    Attached,
    AttachRole,
    Close,
    Error,
    FaultCode,
    Forward,
    Frame,
    Goodbye,
    Limits,
    Open,
    Ping,
    Pong,
    Slice,
    StatsRequest,
    WireDtype,
)
from fleetchat.wire.protocol import Connection
from fleetchat.wire.states import Purpose
from tests.wire.samples import CHAIN, EPOCH, KEY, joined, opened, plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Streams = tuple[trio.abc.Stream, trio.abc.Stream]
THERE = Address("there", 7447)


async def shake(
    one: trio.abc.Stream, two: trio.abc.Stream, purpose: Purpose = Purpose.CONTROL
) -> tuple[Link, Link]:
    links: list[Link] = []

    async def listen() -> None:
        links.append(await accept(two, KEY))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        links.append(await dial_over(one, KEY, purpose=purpose, peer_address=THERE))
    listener, dialler = sorted(links, key=lambda link: link.peer_address is not None)
    return dialler, listener


@asynccontextmanager
async def control(
    make: Callable[[], Streams] = trio.testing.memory_stream_pair,
) -> AsyncIterator[tuple[Link, Link]]:
    """A control link after OPEN."""
    dialler, listener = await shake(*make())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialler.send, opened(1))
        assert isinstance(await listener.receive(), Open)
    yield dialler, listener
    await dialler.aclose()
    await listener.aclose()


def large_forward(rows: int = 40_000, width: int = 16) -> tuple[Forward, Limits]:
    hidden = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    piece = Slice(SessionId(1), 0, 0, np.zeros(rows, np.int32))
    frame = Forward(EPOCH, BatchSequence(1), (piece,), hidden)
    return frame, Limits(4_000_000, rows, 1, width, WireDtype.F32, 10)


@asynccontextmanager
async def upstream(
    limits: Limits, make: Callable[[], Streams] = trio.testing.memory_stream_pair
) -> AsyncIterator[tuple[Link, Link]]:
    """An upstream data link after ATTACHED."""
    dialler, listener = await shake(*make(), purpose=Purpose.DATA)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialler.send, Attach(CHAIN, EPOCH, opened(1).stage, AttachRole.UPSTREAM))
        assert isinstance(await listener.receive(), Attach)
        nursery.start_soon(listener.send, Attached())
        assert await dialler.receive() == Attached()
    for link in (dialler, listener):
        link.set_limits(limits)
    yield dialler, listener
    await dialler.aclose()
    await listener.aclose()


@pytest.mark.trio
async def test_after_the_handshake_both_know_each_other() -> None:
    dialler, listener = await shake(*trio.testing.memory_stream_pair(), purpose=Purpose.DATA)
    assert dialler.purpose is listener.purpose is Purpose.DATA
    assert dialler.their_version == listener.their_version == __version__
    assert (dialler.peer_address, str(dialler), str(listener)) == (THERE, "there:7447", "the peer")


@pytest.mark.trio
async def test_frames_arrive_in_order_and_are_counted() -> None:
    async with control() as (dialler, listener):
        before = (dialler.bytes_sent, listener.bytes_received)
        for number in range(5):
            await listener.send(Error(FaultCode.LINK, str(number)))
        assert [await dialler.receive() for _ in range(5)] == [
            Error(FaultCode.LINK, str(n)) for n in range(5)
        ]
        assert dialler.last_frame_bytes == 40 + len('{"code":"link","text":"0","hint":""}')
        assert (dialler.bytes_sent, listener.bytes_received) == before
        assert dialler.bytes_received == listener.bytes_sent
        assert dialler.bytes_sent == listener.bytes_received


@pytest.mark.trio
async def test_a_large_frame_goes_through_small_reads() -> None:
    frame, limits = large_forward()
    async with (
        upstream(limits, trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(dialler.send, frame)
        assert plain(await listener.receive()) == plain(frame)
        assert listener.last_frame_bytes > 2_700_000


@pytest.mark.trio
async def test_frames_of_many_senders_never_mix() -> None:
    async with (
        control(trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):
        for number in range(20):
            nursery.start_soon(listener.send, Error(FaultCode.LINK, str(number) * 100))
        texts = {await receive_error(dialler) for _ in range(20)}
        assert texts == {str(number) * 100 for number in range(20)}


async def receive_error(link: Link) -> str:
    frame = await link.receive()
    assert isinstance(frame, Error)
    return frame.text


async def failures(one: trio.abc.Stream, two: trio.abc.Stream, their_key: bytes) -> list[FleetchatError]:
    """Of a dialler with another key and of a listener."""
    found: list[FleetchatError] = []

    async def listen() -> None:
        with pytest.raises(FleetchatError) as caught:
            await accept(two, KEY, peer_address=Address("caller", 1))
        found.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        with pytest.raises(FleetchatError) as caught:
            await dial_over(one, their_key, purpose=Purpose.CONTROL, peer_address=THERE)
        found.append(caught.value)
    return found


@pytest.mark.trio
async def test_with_a_wrong_key_both_sides_say_so_and_where() -> None:
    found = await failures(*trio.testing.memory_stream_pair(), their_key=bytes(32))
    assert [type(error) for error in found] == [AuthenticationFailed, AuthenticationFailed]
    assert sorted(error.message for error in found) == [
        "caller:1: the two sides do not hold the same fleet key",
        "there:7447: the two sides do not hold the same fleet key",
    ]
    assert all(error.hint for error in found)


@pytest.mark.trio
async def test_another_version_is_refused_in_words() -> None:
    one, two = trio.testing.memory_stream_pair()
    hello = bytearray(joined(Connection.dialler(KEY, purpose=Purpose.CONTROL).start()))
    hello[4] = 200
    await one.send_all(hello)
    with pytest.raises(PeerRefused, match="theirs is 200"):
        await accept(two, KEY)
    assert (await one.receive_some())[5] == 5  # REFUSED
    assert await one.receive_some() == b""


@pytest.mark.trio
async def test_a_web_client_is_sent_away_without_an_answer() -> None:
    one, two = trio.testing.memory_stream_pair()
    await one.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(RemoteProtocolError, match="does not speak the fleetchat protocol"):
        await accept(two, KEY)
    assert await one.receive_some() == b""


@pytest.mark.trio
async def test_a_silent_or_slow_stranger_is_dropped_at_the_handshake_deadline(
    autojump_clock: trio.abc.Clock,
) -> None:
    one, two = trio.testing.memory_stream_pair()
    hello = joined(Connection.dialler(KEY, purpose=Purpose.CONTROL).start())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drip, one, hello)
        started = trio.current_time()
        with pytest.raises(PeerLost, match="did not finish the handshake within 5 s"):
            await accept(two, KEY)
        assert trio.current_time() - started == pytest.approx(5)
        nursery.cancel_scope.cancel()
    assert await one.receive_some() == b""


@pytest.mark.trio
async def test_a_stranger_who_leaves_during_the_handshake_is_a_lost_peer() -> None:
    one, two = trio.testing.memory_stream_pair()
    await one.aclose()
    with pytest.raises(PeerLost, match="closed the link during the handshake"):
        await accept(two, KEY)


@pytest.mark.trio
async def test_idle_time_is_unlimited(autojump_clock: trio.abc.Clock) -> None:
    async with control() as (dialler, listener), trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(80_000)
            await listener.send(Goodbye("late"))

        nursery.start_soon(later)
        assert await dialler.receive() == Goodbye("late")


async def drip(stream: trio.abc.Stream, encoded: bytes) -> None:
    """One byte a second, until the other side closes."""
    with suppress(trio.BrokenResourceError):
        for byte in encoded:
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)


def half(listener: Link, frame: Frame) -> tuple[bytes, bytes]:
    """The bytes of a frame, cut in the middle; taken from the connection, so that their number is right."""
    encoded = joined(listener._connection.send(frame))
    return encoded[: len(encoded) // 2], encoded[len(encoded) // 2 :]


@pytest.mark.trio
async def test_a_stall_inside_a_frame_is_a_lost_peer(autojump_clock: trio.abc.Clock) -> None:
    async with control() as (dialler, listener):
        await listener._stream.send_all(half(listener, Goodbye("x"))[0])
        started = trio.current_time()
        with pytest.raises(PeerLost, match="there:7447 stalled inside a frame"):
            await dialler.receive()
        assert trio.current_time() - started == pytest.approx(10)
        assert dialler.ended


@pytest.mark.trio
async def test_a_frame_that_drips_for_ever_is_a_lost_peer(autojump_clock: trio.abc.Clock) -> None:
    async with control() as (dialler, listener), trio.open_nursery() as nursery:
        encoded = joined(listener._connection.send(Goodbye("x" * 500)))
        nursery.start_soon(drip, listener._stream, encoded)
        started = trio.current_time()
        with pytest.raises(PeerLost, match="stalled inside a frame"):
            await dialler.receive()
        assert trio.current_time() - started == pytest.approx(10, abs=1.1)
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_cancelled_receive_loses_nothing_and_waits_as_long_afterwards(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with control() as (dialler, listener):
        first, second = half(listener, Goodbye("whole"))
        await listener._stream.send_all(first)
        for _ in range(3):
            with trio.move_on_after(1) as scope:
                await dialler.receive()
            assert scope.cancelled_caught
            await trio.sleep(1000)  # nobody receives: not the peer's fault
        await listener._stream.send_all(second)
        assert await dialler.receive() == Goodbye("whole")


@pytest.mark.trio
async def test_a_send_that_is_cancelled_half_way_closes_the_link(autojump_clock: trio.abc.Clock) -> None:
    frame, limits = large_forward()
    async with upstream(limits, trio.testing.lockstep_stream_pair) as (dialler, listener):
        with trio.move_on_after(1) as scope:
            await dialler.send(frame)
        assert scope.cancelled_caught
        with pytest.raises(PeerLost, match="cancelled half-way"):
            await dialler.send(Close(EPOCH, SessionId(1)))
        with pytest.raises(PeerLost):
            await listener.receive()


@pytest.mark.trio
async def test_a_shielded_send_is_finished_by_whoever_is_cancelled(autojump_clock: trio.abc.Clock) -> None:
    frame, limits = large_forward()
    async with (
        upstream(limits, trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):

        async def send_and_be_cancelled() -> None:
            with trio.move_on_after(1) as scope:
                await dialler.send(frame, shielded=True)
                await trio.sleep_forever()
            assert scope.cancelled_caught

        nursery.start_soon(send_and_be_cancelled)
        await trio.sleep(2)
        assert isinstance(await listener.receive(), Forward)
        nursery.start_soon(dialler.send, Close(EPOCH, SessionId(2)))
        assert await listener.receive() == Close(EPOCH, SessionId(2))


@pytest.mark.trio
async def test_a_send_that_is_cancelled_while_it_waits_for_its_turn_does_no_harm(
    autojump_clock: trio.abc.Clock,
) -> None:
    frame, limits = large_forward()
    async with (
        upstream(limits, trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(dialler.send, frame)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await dialler.send(Close(EPOCH, SessionId(1)))
        assert isinstance(await listener.receive(), Forward)
        nursery.start_soon(dialler.send, Close(EPOCH, SessionId(2)))
        assert await listener.receive() == Close(EPOCH, SessionId(2))


@pytest.mark.trio
async def test_what_must_not_be_sent_leaves_the_link_usable() -> None:
    async with control() as (dialler, listener):
        with pytest.raises(LocalProtocolError):
            await listener.send(StatsRequest())
        await listener.send(Goodbye("ok"))
        assert await dialler.receive() == Goodbye("ok")


@pytest.mark.trio
async def test_the_end_of_the_file_is_a_lost_peer() -> None:
    async with control() as (dialler, listener):
        await listener.aclose()
        with pytest.raises(PeerLost, match="there:7447 closed the link"):
            await dialler.receive()
        with pytest.raises(PeerLost, match="there:7447 closed the link"):
            await dialler.send(StatsRequest())


@pytest.mark.trio
async def test_the_end_of_the_file_inside_a_frame_is_a_lost_peer() -> None:
    async with control() as (dialler, listener):
        await listener._stream.send_all(half(listener, Goodbye("x"))[0])
        await listener.aclose()
        with pytest.raises(PeerLost, match="broke the link inside a frame"):
            await dialler.receive()


@pytest.mark.trio
async def test_noise_on_the_link_is_their_fault_and_ends_it() -> None:
    async with control() as (dialler, listener):
        await listener._stream.send_all(b"FLTC" + bytes(60))
        with pytest.raises(RemoteProtocolError, match="there:7447: frame of unknown kind 0"):
            await dialler.receive()
        with pytest.raises(PeerLost, match="broke the protocol"):
            await dialler.send(StatsRequest())


@pytest.mark.trio
async def test_what_they_said_before_they_left_is_heard_after_a_send_failed() -> None:
    async with control() as (dialler, listener):
        await listener.send(Error(FaultCode.CELLS, "too few"))
        await listener.aclose()
        with pytest.raises(PeerLost):
            await dialler.send(StatsRequest())
        assert await receive_error(dialler) == "too few"
        with pytest.raises(PeerLost):
            await dialler.receive()


@pytest.mark.trio
async def test_closing_wakes_a_task_that_receives() -> None:
    async with control() as (dialler, _), trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(PeerLost, match="closed on this side"):
                await dialler.receive()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await dialler.aclose()


@pytest.mark.trio
async def test_pings_are_answered_and_measured_out_of_sight() -> None:
    async with control() as (dialler, listener), trio.open_nursery() as nursery:
        seen: list[Frame] = []
        nursery.start_soon(collect, dialler, seen)
        nursery.start_soon(collect, listener, seen)
        for count in range(1, 80):
            await dialler.ping()
            await trio.testing.wait_all_tasks_blocked()
            assert len(dialler.round_trips) == min(count, 64)
        assert seen == []
        assert all(0 <= round_trip < 1_000_000 for round_trip in dialler.round_trips)
        assert dialler.median_round_trip_us == round(float(np.median(dialler.round_trips)))
        assert (len(listener.round_trips), listener.median_round_trip_us) == (0, 0)
        await listener.send(Goodbye("after the pings"))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [Goodbye("after the pings")]
        nursery.cancel_scope.cancel()


async def collect(link: Link, seen: list[Frame]) -> None:
    while True:
        seen.append(await link.receive())


@pytest.mark.trio
async def test_keep_pinging_keeps_last_heard_fresh(autojump_clock: trio.abc.Clock) -> None:
    async with control() as (dialler, listener), trio.open_nursery() as nursery:
        nursery.start_soon(collect, dialler, [])
        nursery.start_soon(collect, listener, [])
        nursery.start_soon(dialler.keep_pinging, 0.5)
        await trio.sleep(10.25)
        assert len(dialler.round_trips) == 21
        assert trio.current_time() - dialler.last_heard == pytest.approx(0.25)
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_without_an_answer_last_heard_stays_and_pings_are_forgotten(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with control() as (dialler, _), trio.open_nursery() as nursery:
        heard = dialler.last_heard
        nursery.start_soon(dialler.keep_pinging, 0.5)
        await trio.sleep(100)
        assert dialler.last_heard == heard
        assert len(dialler._pings) == 64
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_ping_that_comes_while_we_send_is_answered_after_the_frame() -> None:
    frame, limits = large_forward()
    async with (
        upstream(limits, trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(dialler.send, frame)
        nursery.start_soon(collect, dialler, [])
        await trio.testing.wait_all_tasks_blocked()
        await listener.ping()  # read and kept while the dialler holds its lock
        assert isinstance(await listener.receive(), Forward)
        nursery.start_soon(collect, listener, [])
        await trio.testing.wait_all_tasks_blocked()
        assert len(listener.round_trips) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_peer_that_pings_and_never_reads_is_lost(autojump_clock: trio.abc.Clock) -> None:
    async with (
        control(trio.testing.lockstep_stream_pair) as (dialler, listener),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(listener.ping)
        started = trio.current_time()
        with pytest.raises(PeerLost):
            await dialler.receive()
        assert trio.current_time() - started == pytest.approx(1)


@pytest.mark.trio
async def test_a_pong_nobody_asked_for_is_ignored() -> None:
    async with control() as (dialler, listener):
        await listener.send(Pong(12345))
        await listener.send(Goodbye("x"))
        assert await dialler.receive() == Goodbye("x")
        assert len(dialler.round_trips) == 0


@pytest.mark.trio
async def test_after_goodbye_pings_are_read_and_not_answered() -> None:
    async with control() as (dialler, listener):
        await dialler.send(Goodbye("x"))
        await listener.send(Ping(1))
        await listener.send(Error(FaultCode.LINK, "last words"))
        assert await receive_error(dialler) == "last words"
        await dialler.ping()  # nothing is sent, nothing fails
        assert not dialler.ended
