"""The delaying relay: when bytes are let go, and that all of them arrive in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as some

from fleetchat.bench.relay import Line, Relay, RelayedLegs, Shape, is_between_machines, open_relay
from fleetchat.ids import Address
from tests.fakes.chain import Letters, fake_fleet, request
from tests.fakes.engine import by_position, reply
from tests.peer.coordinator import wait_for

MS = 1e-3


def release(shape: Shape, *chunks: tuple[float, int]) -> list[float]:
    line = Line(Random(1))
    return [line.release(now, size, shape) for now, size in chunks]


def test_every_chunk_is_delayed_alike() -> None:
    assert release(Shape(delay=0.05), (1.0, 10), (1.01, 10**6)) == [1.05, pytest.approx(1.06)]


def test_a_line_passes_so_many_bytes_a_second() -> None:
    shape = Shape(delay=0.5, bandwidth=1000)
    assert release(shape, (0.0, 100), (0.0, 100), (10.0, 50)) == [0.6, 0.7, pytest.approx(10.55)]


@given(
    some.lists(some.tuples(some.floats(0, 0.01), some.integers(0, 5000)), min_size=1),
    some.floats(0, 0.1),
    some.floats(0, 0.1),
    some.one_of(some.none(), some.floats(1e3, 1e6)),
)
def test_nothing_overtakes_and_nothing_is_early(
    chunks: list[tuple[float, int]], delay: float, jitter: float, bandwidth: float | None
) -> None:
    line, now = Line(Random(2)), 0.0
    released = []
    for step, size in chunks:
        now += step
        when = line.release(now, size, Shape(delay, jitter, bandwidth))
        assert when >= now + delay
        released.append(when)
    assert all(earlier <= later for earlier, later in pairwise(released))


def test_a_shorter_delay_from_now_on_does_not_overtake() -> None:
    line = Line(Random(3))
    assert line.release(0.0, 1, Shape(delay=1.0)) == 1.0
    assert line.release(0.1, 1, Shape(delay=0.0)) == 1.0
    assert line.release(1.5, 1, Shape(delay=0.0)) == 1.5


async def echo(stream: trio.SocketStream) -> None:
    async with stream:
        async for chunk in stream:
            await stream.send_all(chunk)


@asynccontextmanager
async def relayed(
    shape: Shape, serve: Callable[[trio.SocketStream], Awaitable[None]] = echo
) -> AsyncIterator[Relay]:
    """A relay before a server of ours."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        async with open_relay(Address(*listeners[0].socket.getsockname()[:2]), shape) as relay:
            yield relay
        nursery.cancel_scope.cancel()


async def received(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = await stream.receive_some(1 << 16)
        assert chunk
        data += bytes(chunk)
    return data


@pytest.mark.trio
async def test_a_round_trip_takes_both_delays() -> None:
    async with relayed(Shape(delay=10 * MS)) as relay, await trio.open_tcp_stream(*relay.address) as stream:
        trips = []
        for _ in range(9):
            started = trio.current_time()
            await stream.send_all(b"ping")
            assert await received(stream, 4) == b"ping"
            trips.append(trio.current_time() - started)
    assert 19 * MS <= min(trips) <= 23 * MS  # the least: other programs may be running


@pytest.mark.trio
async def test_a_delay_does_not_limit_the_throughput() -> None:
    sent = Random(4).randbytes(1 << 20)
    async with (
        relayed(Shape(delay=20 * MS, jitter=2 * MS)) as relay,
        await trio.open_tcp_stream(*relay.address) as stream,
        trio.open_nursery() as nursery,
    ):
        started = trio.current_time()
        nursery.start_soon(stream.send_all, sent)
        assert await received(stream, len(sent)) == sent
    assert trio.current_time() - started < 1.0  # 16 chunks one after the other would take 0.64 s more


@pytest.mark.trio
async def test_the_end_of_a_stream_comes_after_its_last_byte() -> None:
    async def answer_at_the_end(stream: trio.SocketStream) -> None:
        async with stream:
            size = 0
            async for chunk in stream:
                size += len(chunk)
            await stream.send_all(str(size).encode())

    async with (
        relayed(Shape(delay=5 * MS), answer_at_the_end) as relay,
        await trio.open_tcp_stream(*relay.address) as stream,
    ):
        await stream.send_all(b"x" * 1000)
        await stream.send_eof()
        assert await received(stream, 4) == b"1000"
        assert await stream.receive_some(1) == b""


@pytest.mark.trio
async def test_many_connections_and_one_that_breaks() -> None:
    async with relayed(Shape(delay=1 * MS)) as relay:
        done = []

        async def talk(number: int) -> None:
            async with await trio.open_tcp_stream(*relay.address) as stream:
                for turn in range(5):
                    message = f"{number:02} {turn}".encode()
                    await stream.send_all(message)
                    assert await received(stream, len(message)) == message
            done.append(number)

        broken = await trio.open_tcp_stream(*relay.address)
        await broken.send_all(b"x" * 100_000)
        await trio.aclose_forcefully(broken)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(talk, number)
        assert sorted(done) == list(range(20))
        assert relay.connections == 21


@pytest.mark.trio
async def test_a_target_that_is_not_there_ends_the_connection() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = Address(*listeners[0].socket.getsockname()[:2])
    await listeners[0].aclose()
    async with open_relay(address, Shape()) as relay, await trio.open_tcp_stream(*relay.address) as stream:
        assert await stream.receive_some(1) == b""


@pytest.mark.trio
@pytest.mark.slow
async def test_a_delayed_leg_is_seen_on_its_own_leg_only() -> None:
    legs = RelayedLegs(lambda leg, stages: Shape(delay=30 * MS) if leg == 1 else None)
    async with fake_fleet(2, legs=legs) as fake:
        assert list(legs.relays) == [1]
        answer = await fake.fleet.generate(
            fake.fleet.new_session(), request([1, 2], max_tokens=20), Letters(), on_text=lambda text: None
        )
        assert list(answer.token_ids) == reply(0, 2, 20, by_position)

        def only_that_leg_is_slow() -> bool:
            """A ping may meet a busy machine: the median does not for long."""
            snapshot = fake.fleet.snapshot()
            first, second = (stage.network_ms for stage in snapshot.stages)
            back = snapshot.return_network_ms
            return second.count > 2 and 29 <= second.p50 <= 40 and first.p50 < 10 and back.p50 < 10

        await wait_for(only_that_leg_is_slow)


@pytest.mark.trio
async def test_relays_of_a_chain_lie_between_machines() -> None:
    addresses = [Address("127.0.0.1", 1), Address("127.0.0.1", 2), Address("127.0.0.1", 3)]
    legs = RelayedLegs(lambda leg, stages: Shape() if is_between_machines(leg, stages) else None)
    async with legs(addresses) as dialled:
        assert dialled[0] == addresses[0]
        assert sorted(legs.relays) == [1, 2, 3]
        assert [relay.target for relay in legs.relays.values()] == [addresses[1], addresses[2], addresses[2]]
        assert list(dialled[1:]) == [legs.relays[leg].address for leg in (1, 2, 3)]
        legs.set_delay(0.05)
        assert {relay.shape.delay for relay in legs.relays.values()} == {0.05}
