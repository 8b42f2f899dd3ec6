"""A live peer that gets damaged frames: nothing is loaded for their senders, and it goes on serving."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
import trio

from fleetchat.ids import Address
from fleetchat.wire.header import HEADER_BYTES, UNTAGGED_BYTES
from fleetchat.wire.protocol import NEED_DATA, Connection, HandshakeDone
from fleetchat.wire.states import Purpose
from tests.fakes.engine import by_session
from tests.peer.builders import opening, piece
from tests.peer.coordinator import KEY, FakePeer, fake_peer, open_chain
from tests.wire.mutation import mutated
from tests.wire.samples import joined

pytestmark = pytest.mark.trio
STRANGERS = 100
LIARS = 100


async def read_to_the_end(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(4096):
            pass


async def be_strange(address: Address, random: Random) -> None:
    """A damaged HELLO, then the end; the peer closes."""
    hello = joined(Connection.dialler(KEY, purpose=Purpose.CONTROL).start())
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(mutated(hello, random))
            await stream.send_eof()
        await read_to_the_end(stream)


async def lie(address: Address, random: Random) -> None:
    """An OPEN that was damaged on the way from somebody who knows the key."""
    connection = Connection.dialler(KEY, purpose=Purpose.CONTROL)
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(joined(connection.start()))
        while not isinstance(event := connection.next_event(), HandshakeDone):
            assert event is NEED_DATA
            await stream.send_all(joined(connection.bytes_to_send()))
            connection.receive_data(await stream.receive_some(4096))
        wire = joined(connection.send(opening()))
        head, body = wire[:UNTAGGED_BYTES], mutated(wire[HEADER_BYTES:], random)
        head = head[:-4] + len(body).to_bytes(4, "little")
        with suppress(trio.BrokenResourceError):
            await stream.send_all(head + wire[UNTAGGED_BYTES:HEADER_BYTES] + body)
            await stream.send_eof()
        await read_to_the_end(stream)


async def check_serves(peer: FakePeer) -> None:
    chain = await open_chain([peer.address])
    result = await chain.round(piece(1, 0, [5, 6]))
    assert result.results[0].token == by_session(1, 2)
    await chain.close()


async def test_strangers_and_liars_do_not_matter() -> None:
    random = Random(7)
    async with fake_peer() as peer:
        async with trio.open_nursery() as nursery:
            for _ in range(STRANGERS):
                nursery.start_soon(be_strange, peer.address, Random(random.random()))
        for _ in range(LIARS):
            await lie(peer.address, random)
        assert not peer.engines  # no shard was loaded for any of them
        await check_serves(peer)
