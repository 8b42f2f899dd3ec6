"""A door in front of a peer: every link goes through it, and a test decides what becomes of the bytes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import trio

from fleetchat.ids import Address

Change = Callable[[bytes], bytes]  # what becomes of a chunk; b"" swallows it


def pass_on(chunk: bytes) -> bytes:
    return chunk


def swallow(chunk: bytes) -> bytes:
    return b""


def flip_a_bit(chunk: bytes) -> bytes:
    """Noise that no checksum of TCP notices."""
    middle = len(chunk) // 2
    return chunk[:middle] + bytes([chunk[middle] ^ 16]) + chunk[middle + 1 :]


@dataclass(eq=False)
class Connection:
    """One link through the door. `inward` is what the peer gets, `outward` what it says."""

    number: int  # from 0; the control link of an epoch is dialled before its data links
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    inward: Change = pass_on
    outward: Change = pass_on
    thawed: trio.Event = field(default_factory=trio.Event)  # not set: nothing moves, and nothing is lost

    def __post_init__(self) -> None:
        self.thawed.set()


class Door:
    """`target` and `closed` may be changed at any time."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.closed = False  # new connections are dropped
        self.address = Address("127.0.0.1", 0)
        self.links: list[Connection] = []  # that are open
        self.dialled = 0
        self.inward: Change = pass_on  # of the links to come
        self._numbers = itertools.count()

    def cut(self) -> None:
        """All links end at once, as those of a process that was killed."""
        for link in self.links:
            link.scope.cancel()

    def freeze(self) -> None:
        """Nothing comes out any more, as of a process that was stopped."""
        for link in self.links:
            link.thawed = trio.Event()

    def thaw(self) -> None:
        for link in self.links:
            link.thawed.set()

    @property
    def data_links(self) -> list[Connection]:
        return self.links[1:]

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = Address(*listeners[0].socket.getsockname()[:2])
        await trio.serve_listeners(self._connect, listeners, task_status=task_status)  # type: ignore[arg-type]

    async def _connect(self, near: trio.SocketStream) -> None:
        self.dialled += 1
        async with near:
            if self.closed:
                return
            with suppress(OSError):
                far = await trio.open_tcp_stream(self.target.host, self.target.port)
                async with far:
                    await self._join(near, far)

    async def _join(self, near: trio.SocketStream, far: trio.SocketStream) -> None:
        link = Connection(next(self._numbers), inward=self.inward)
        self.links.append(link)
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry, near, far, lambda chunk: link.inward(chunk), link)
                    nursery.start_soon(self._carry, far, near, lambda chunk: link.outward(chunk), link)
        finally:
            self.links.remove(link)

    @staticmethod
    async def _carry(
        source: trio.SocketStream, sink: trio.SocketStream, change: Change, link: Connection
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await source.receive_some(1 << 16):
                await link.thawed.wait()
                if changed := change(bytes(chunk)):
                    await sink.send_all(changed)
        link.scope.cancel()


@asynccontextmanager
async def open_door(target: Address) -> AsyncIterator[Door]:
    door = Door(target)
    async with trio.open_nursery() as nursery:
        await nursery.start(door.serve)
        yield door
        nursery.cancel_scope.cancel()
