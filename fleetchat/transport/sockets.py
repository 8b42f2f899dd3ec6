"""TCP: connecting, options, and operating-system errors in words."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import trio

from fleetchat.errors import PeerUnreachable
from fleetchat.ids import Address

# Where the platform has them: a dead host on an idle link is noticed after 60 s.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


async def connect(address: Address, deadline: float) -> trio.SocketStream:
    """Raises PeerUnreachable within `deadline` seconds."""
    with trio.move_on_after(deadline):
        try:
            return await trio.open_tcp_stream(address.host, address.port)
        except OSError as error:
            raise PeerUnreachable(
                f"no peer answers at {address}: {_operating_system_reason(error)}",
                hint="is `fleetchat peer` running there, and does a firewall let the port through?",
            ) from None
    raise PeerUnreachable(
        f"no peer answers at {address} within {deadline:g} s",
        hint="check the address, the network and the firewall of that machine",
    )


def set_options(stream: trio.SocketStream) -> None:
    """No delay for small frames; keep-alive finds dead hosts on idle links, where the platform has it."""
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *[
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in _KEEP_ALIVE.items()
            if hasattr(socket, name)
        ],
    ]
    for level, option, value in options:
        with suppress(OSError):  # unknown to this system, or the other side is gone already
            stream.setsockopt(level, option, value)


def address_of(stream: trio.SocketStream) -> Address | None:
    """Where the other side is; None when it is gone already."""
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return None
    return Address(host, port)


def _operating_system_reason(error: OSError) -> str:
    """One reason; trio wraps the failures of several addresses of one name."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    inner = cause if isinstance(cause, OSError) else error
    if isinstance(inner, socket.gaierror) or not inner.errno:
        return (inner.strerror or str(inner)).lower()
    return os.strerror(inner.errno).lower()  # without the address that trio adds to it
