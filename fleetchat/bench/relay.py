"""A relay that delays both directions of a link, with jitter and a bandwidth limit, as a network would.

What arrives gets a release time: the line must be free (bandwidth), then comes the delay, then the
jitter; nothing overtakes what came before it. Chunks wait in a queue for their time, so a delay does not
limit the throughput.

Trio wakes sleepers up to a millisecond late, since epoll counts in whole milliseconds. Half of that is taken
off every wait, so that the mean delay is the one that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from random import Random

import trio

from fleetchat.ids import Address

CHUNK = 1 << 16  # bytes read at once
QUEUED_CHUNKS = 4096  # of one direction; what comes beyond waits in the sockets
TIMER_LATENESS = 0.0005  # seconds, in the mean


@dataclass(frozen=True, slots=True)
class Shape:
    """One direction of a link. `delay` and `jitter` are seconds, jitter is added evenly from 0 to this;
    `bandwidth` is bytes a second, None = unlimited.
    """

    delay: float = 0.0
    jitter: float = 0.0
    bandwidth: float | None = None


class Line:
    """When each chunk of one direction is released (pure: the caller gives the time)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._free = -math.inf  # when the line has passed what came so far
        self._released = -math.inf

    def release(self, now: float, size: int, shape: Shape) -> float:
        """For a chunk of `size` bytes that arrives now. The shape may change from chunk to chunk."""
        self._free = max(now, self._free)
        if shape.bandwidth is not None:
            self._free += size / shape.bandwidth
        delay = shape.delay + (self._random.random() * shape.jitter if shape.jitter else 0.0)
        self._released = max(self._released, self._free + delay)
        return self._released


class Relay:
    """Listens on a loopback port and passes every connection on to one address. Use `open_relay`.

    `shape` may be changed at any time; it holds for what arrives from then on.
    """

    def __init__(self, target: Address, shape: Shape, seed: int) -> None:
        self.target = target
        self.shape = shape
        self.address = Address("127.0.0.1", 0)
        self.connections = 0
        self._seed = seed

    def set_delay(self, seconds: float) -> None:
        self.shape = replace(self.shape, delay=seconds)

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = Address(*listeners[0].socket.getsockname()[:2])
        await trio.serve_listeners(self._connect, listeners, task_status=task_status)  # type: ignore[arg-type]

    async def _connect(self, near: trio.SocketStream) -> None:
        """One connection; whatever breaks it ends both sides of it, and nothing else."""
        number = self.connections
        self.connections += 1
        async with near:
            with suppress(OSError):
                far = await trio.open_tcp_stream(self.target.host, self.target.port)
                async with far, trio.open_nursery() as nursery:
                    for index, (source, sink) in enumerate(((near, far), (far, near))):
                        line = Line(Random(f"{self._seed} {number} {index}"))
                        nursery.start_soon(self._pass_on, source, sink, line, nursery.cancel_scope)

    async def _pass_on(
        self, source: trio.SocketStream, sink: trio.SocketStream, line: Line, both: trio.CancelScope
    ) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](QUEUED_CHUNKS)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take, source, line, send)
                async with receive:
                    async for when, chunk in receive:
                        await trio.sleep_until(when - TIMER_LATENESS)
                        await sink.send_all(chunk)
                    await sink.send_eof()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            both.cancel()

    async def _take(
        self, source: trio.SocketStream, line: Line, send: trio.MemorySendChannel[tuple[float, bytes]]
    ) -> None:
        async with send:
            while chunk := await source.receive_some(CHUNK):
                now = trio.current_time()
                await send.send((line.release(now, len(chunk), self.shape), bytes(chunk)))
            # The end of the stream is delayed like the bytes before it.
            now = trio.current_time()
            await trio.sleep_until(line.release(now, 0, self.shape) - TIMER_LATENESS)


@asynccontextmanager
async def open_relay(target: Address, shape: Shape, *, seed: int = 0) -> AsyncIterator[Relay]:
    """A relay that serves until the end; then its connections are closed."""
    relay = Relay(target, shape, seed)
    async with trio.open_nursery() as nursery:
        await nursery.start(relay.serve)
        yield relay
        nursery.cancel_scope.cancel()


class RelayedLegs:
    """Relays on some legs of a chain. Leg i leads into stage i, the last one back to the coordinator.

    An object of this class is what `open_fleet(…, legs=…)` takes; the relays live as long as the fleet.
    """

    def __init__(self, shapes: Callable[[int, int], Shape | None], *, seed: int = 0) -> None:
        """`shapes(leg, stages)` says how a leg is delayed; None leaves it as it is."""
        self._shapes = shapes
        self._seed = seed
        self.relays: dict[int, Relay] = {}

    @asynccontextmanager
    async def __call__(self, addresses: Sequence[Address]) -> AsyncIterator[tuple[Address, ...]]:
        """Where to dial for each leg, given where the stages listen."""
        legs = [*addresses, addresses[-1]]
        async with AsyncExitStack() as stack:
            for leg, target in enumerate(legs):
                shape = self._shapes(leg, len(addresses))
                if shape is not None:
                    relay = await stack.enter_async_context(open_relay(target, shape, seed=self._seed + leg))
                    self.relays[leg] = relay
                    legs[leg] = relay.address
            yield tuple(legs)

    def set_delay(self, seconds: float) -> None:
        """Of all relays."""
        for relay in self.relays.values():
            relay.set_delay(seconds)


def is_between_machines(leg: int, stages: int) -> bool:
    """Stage 0 runs on the chat's machine: the first leg is no network leg, unless there is no other stage."""
    return leg > 0 or stages == 1
