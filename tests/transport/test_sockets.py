"""Real sockets on the loopback address: options, refusals, unreachable peers."""

from __future__ import annotations

import socket

import pytest
import trio

from fleetchat.errors import PeerLost, PeerUnreachable
from fleetchat.ids import Address
from fleetchat.transport.dialling import accept, dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Attach, AttachRole
from fleetchat.wire.states import Purpose
from tests.fakes.peers import nobody_listens
from tests.wire.samples import CHAIN, EPOCH, KEY, opened


@pytest.mark.trio
async def test_a_link_over_tcp_has_no_delay_and_is_kept_alive() -> None:
    (tcp_listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = Address(*tcp_listener.socket.getsockname()[:2])
    accepted: list[Link] = []

    async def serve() -> None:
        accepted.append(await accept(await tcp_listener.accept(), KEY))

    async with tcp_listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        link = await dial(address, KEY, purpose=Purpose.DATA)
    (other,) = accepted
    for end in (link, other):
        stream = end._stream
        assert isinstance(stream, trio.SocketStream)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert link.peer_address == address
    assert other.peer_address is not None
    assert other.peer_address.host == "127.0.0.1"
    attach = Attach(CHAIN, EPOCH, opened(1).stage, AttachRole.UPSTREAM)
    await link.send(attach)
    assert await other.receive() == attach
    await link.aclose()
    with pytest.raises(PeerLost):
        await other.receive()


@pytest.mark.trio
async def test_a_refused_connection_is_an_unreachable_peer() -> None:
    with nobody_listens() as address, pytest.raises(PeerUnreachable) as caught:
        await dial(address, KEY, purpose=Purpose.CONTROL)
    assert caught.value.message == f"no peer answers at {address}: connection refused"
    assert "fleetchat peer" in (caught.value.hint or "")


@pytest.mark.trio
async def test_a_host_that_never_answers_is_given_up_at_the_deadline(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect_for_ever(host: str, port: int) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", connect_for_ever)
    with pytest.raises(PeerUnreachable, match="no peer answers at far:1 within 3 s"):
        await dial(Address("far", 1), KEY, purpose=Purpose.CONTROL, connect_deadline=3)


@pytest.mark.trio
async def test_an_unknown_name_is_an_unreachable_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(host: str, port: int) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio, "open_tcp_stream", unknown)
    with pytest.raises(PeerUnreachable, match="no peer answers at nowhere:1: name or service not known"):
        await dial(Address("nowhere", 1), KEY, purpose=Purpose.CONTROL)
