"""The port on which `fleetchat peer` listens unless it is told another."""

from __future__ import annotations

import errno
import os
import socket

from fleetchat.doctor.finding import Finding, ok, warn
from fleetchat.errors import AuthenticationFailed, FleetError, PeerRefused
from fleetchat.ids import Address
from fleetchat.transport.dialling import dial
from fleetchat.wire.states import Purpose

NAME = "port"
DEADLINE = 2.0  # seconds: it is this machine


async def check_port(address: Address, key: bytes) -> Finding:
    """Free, or taken by a peer, or by something else? `key` may be any: the answer tells a peer."""
    fault = listening_fault(address)
    if fault is None:
        return ok(NAME, f"{address} is free for `fleetchat peer`")
    remedy = f"when you start a peer, give it another port: fleetchat peer --listen {address.host}:PORT"
    if fault != errno.EADDRINUSE:
        return warn(NAME, f"{address} cannot be listened on: {os.strerror(fault).lower()}", remedy)
    if await speaks_fleetchat(address, key):
        return ok(NAME, f"a fleetchat peer listens on {address}")
    return warn(
        NAME,
        f"{address} is taken by a program that is no fleetchat peer",
        f"end that program (`ss -ltnp` or `netstat -ano` names it); or, {remedy}",
    )


def listening_fault(address: Address) -> int | None:
    """The error number of trying to listen there; None when it can be done."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        if os.name == "posix":  # connections that have just ended do not count, as for trio
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address.host, address.port))
            trial.listen(1)
        except OSError as error:
            return error.errno or errno.EADDRINUSE
    return None


async def speaks_fleetchat(address: Address, key: bytes) -> bool:
    """Whether what listens there shakes hands, or refuses as a peer refuses."""
    try:
        link = await dial(
            address, key, purpose=Purpose.CONTROL, connect_deadline=DEADLINE, handshake_deadline=DEADLINE
        )
    except (AuthenticationFailed, PeerRefused):
        return True
    except FleetError:
        return False
    await link.aclose()
    return True
