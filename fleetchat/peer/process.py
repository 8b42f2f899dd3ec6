"""The peer as a process: it listens, serves, and leaves in order when it is told to."""

from __future__ import annotations

import errno
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

import trio

from fleetchat.errors import ExitCode, FleetError, InputError
from fleetchat.ids import Address
from fleetchat.peer.loading import EngineFactory, ShardStore
from fleetchat.peer.serve import PeerOptions, serve

STOPPING = (signal.SIGINT, signal.SIGTERM)
SWITCH_INTERVAL = 0.0005
"""Seconds until a thread that computes in Python lets go of the interpreter. The usual 5 ms are a third of
a decode step; an inference thread that comes back would wait that long for a frame that is encoded."""


def run_peer(
    address: Address,
    options: PeerOptions,
    *,
    store: ShardStore,
    engine_factory: EngineFactory,
    on_listening: Callable[[Address], None],
    signals: Collection[signal.Signals] = STOPPING,
    more_addresses: Sequence[Address] = (),
) -> ExitCode:
    """Serve until one of `signals` comes; every coordinator gets GOODBYE. Raises FleetError, InputError.

    `on_listening` hears every address as it is bound.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    start = partial(serve, options=options, store=store, engine_factory=engine_factory)
    return trio.run(_run, (address, *more_addresses), start, on_listening, signals)


def inference_runs() -> bool:
    """Whether a stage is still computing after the end. Such a process must leave by `os._exit`."""
    return any(thread.name.startswith("stage-") for thread in threading.enumerate())


async def _run(
    addresses: Sequence[Address],
    start: Callable[[Sequence[trio.SocketListener]], Awaitable[None]],
    on_listening: Callable[[Address], None],
    stopping: Collection[signal.Signals],
) -> ExitCode:
    with trio.open_signal_receiver(*stopping) as signals:
        listeners: list[trio.SocketListener] = []
        for address in addresses:
            bound = await listen(address)
            on_listening(bound_address(bound[0]))
            listeners += bound
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, listeners)
            received = await anext(signals)
            nursery.cancel_scope.cancel()
    return ExitCode.INTERRUPTED if received == signal.SIGINT else ExitCode.DONE


async def listen(address: Address) -> list[trio.SocketListener]:
    """Raises FleetError (port in use), InputError (no such address here, not permitted)."""
    try:
        return await trio.open_tcp_listeners(address.port, host=address.host)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {address}: there is no host {address.host}") from error
    except (OSError, OverflowError) as error:
        raise _explained(address, error) from error


def _explained(address: Address, error: Exception) -> FleetError | InputError:
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        hint = f"another peer may be running; or choose another port: --listen {address.host}:PORT"
        return FleetError(f"cannot listen on {address}: the port is in use", hint=hint)
    if code in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        hint = "use an address of this machine, or 0.0.0.0 for all of them"
        return InputError(f"cannot listen on {address}: this machine does not have that address", hint=hint)
    if code == errno.EACCES:
        hint = f"ports below 1024 belong to the system: --listen {address.host}:7077"
        return InputError(f"cannot listen on {address}: you may not use that port", hint=hint)
    reason = getattr(error, "strerror", None) or str(error)
    return FleetError(f"cannot listen on {address}: {reason.lower()}")


def bound_address(listener: trio.SocketListener) -> Address:
    """Where a listener really listens: the port that the system chose when 0 was asked for."""
    host, port = listener.socket.getsockname()[:2]
    return Address(host, port)
