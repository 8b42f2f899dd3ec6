"""Making links: connect or take a connection, then shake hands."""

from __future__ import annotations

import trio

from fleetchat.errors import PeerLost
from fleetchat.ids import Address
from fleetchat.keys import certificate_of
from fleetchat.transport.link import CONNECT_DEADLINE, HANDSHAKE_DEADLINE, MID_FRAME_DEADLINE, Link
from fleetchat.transport.sockets import address_of, connect, set_options
from fleetchat.transport.tls import encrypted
from fleetchat.wire.protocol import Connection
from fleetchat.wire.states import Purpose

TLS_WANTED = "if that peer was started with --tls, set tls = true under [fleet] here"


async def dial(
    address: Address,
    key: bytes,
    *,
    purpose: Purpose,
    connect_deadline: float = CONNECT_DEADLINE,
    handshake_deadline: float = HANDSHAKE_DEADLINE,
    mid_frame_deadline: float = MID_FRAME_DEADLINE,
) -> Link:
    """Connect to a peer and shake hands.

    Raises PeerUnreachable (nobody answers), AuthenticationFailed, PeerRefused (protocol version), PeerLost
    (went away or stayed silent during the handshake), RemoteProtocolError (not a fleetchat peer).
    """
    plain = await connect(address, connect_deadline)
    set_options(plain)
    stream = await encrypted(plain, key, str(address), server=False, deadline=handshake_deadline)
    connection = Connection.dialler(key, purpose=purpose)
    try:
        return await _shake_hands(stream, connection, address, handshake_deadline, mid_frame_deadline)
    except PeerLost as error:
        if certificate_of(key) is None and error.hint is None:
            raise PeerLost(error.message, hint=TLS_WANTED) from error
        raise


async def accept(
    stream: trio.abc.Stream,
    key: bytes,
    *,
    peer_address: Address | None = None,
    handshake_deadline: float = HANDSHAKE_DEADLINE,
    mid_frame_deadline: float = MID_FRAME_DEADLINE,
) -> Link:
    """Take a connection that a listener accepted; the stream is closed when the handshake fails.

    Raises as `dial`, but for PeerUnreachable.
    """
    if isinstance(stream, trio.SocketStream):
        set_options(stream)
        peer_address = peer_address or address_of(stream)
        stream = await encrypted(stream, key, str(peer_address), server=True, deadline=handshake_deadline)
    connection = Connection.listener(key)
    return await _shake_hands(stream, connection, peer_address, handshake_deadline, mid_frame_deadline)


async def dial_over(
    stream: trio.abc.Stream,
    key: bytes,
    *,
    purpose: Purpose,
    peer_address: Address | None = None,
    handshake_deadline: float = HANDSHAKE_DEADLINE,
    mid_frame_deadline: float = MID_FRAME_DEADLINE,
) -> Link:
    """The dialler's side over a stream that is connected already (a relay, a memory stream)."""
    connection = Connection.dialler(key, purpose=purpose)
    return await _shake_hands(stream, connection, peer_address, handshake_deadline, mid_frame_deadline)


async def _shake_hands(
    stream: trio.abc.Stream,
    connection: Connection,
    peer_address: Address | None,
    handshake_deadline: float,
    mid_frame_deadline: float,
) -> Link:
    link = Link(stream, connection, peer_address, mid_frame_deadline)
    try:
        await link.shake_hands(handshake_deadline)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return link
