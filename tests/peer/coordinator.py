"""Fake peers on real loopback sockets, and a coordinator that is just enough to talk to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.received import Reception
from fleetchat.engine.interface import StageEngine
from fleetchat.errors import InputError, ShardDamaged
from fleetchat.ids import Address, BuildKey, ChainId, Epoch, StageIndex
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.process import bound_address
from fleetchat.peer.serve import PeerOptions, serve
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import (
    Attach,
    Attached,
    AttachRole,
    Error,
    Frame,
    Open,
    Progress,
    Ready,
    Result,
    Slice,
    Stats,
    StatsRequest,
)
from fleetchat.wire.limits import downstream_limits, upstream_limits
from fleetchat.wire.states import Purpose
from tests.fakes.engine import FakeEngine
from tests.peer.builders import batch, manifest, opening

KEY = bytes(range(32))
FrameType = TypeVar("FrameType", bound=Frame)


@dataclass
class FakeStore:
    """Holds builds without files; `damaged` is what `verify` complains about."""

    manifests: Sequence[Manifest]
    damaged: str = ""

    def builds(self) -> list[Manifest]:
        return list(self.manifests)

    def find(self, build_key: BuildKey, stage: int) -> Manifest | None:
        return next((one for one in self.manifests if one.build_key == build_key), None)

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        return Path(f"stage{index}.xml")

    def verify(self, manifest: Manifest, stage: int) -> None:
        if self.damaged:
            raise ShardDamaged(self.damaged, hint="build it again")

    def begin(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> Reception:
        raise InputError("there is no room for a shard here")


@dataclass
class FakePeer:
    """A peer in this process. `engines` are those it loaded, in order."""

    address: Address
    engines: list[FakeEngine] = field(default_factory=list)


@asynccontextmanager
async def fake_peer(
    stages: int = 1,
    *,
    store: FakeStore | None = None,
    cells: int = 10_000,
    make_engine: Callable[[EngineRequest], FakeEngine] | None = None,
    options: PeerOptions | None = None,
) -> AsyncIterator[FakePeer]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    peer = FakePeer(bound_address(listeners[0]))

    def create(request: EngineRequest) -> StageEngine:
        engine = (
            make_engine(request)
            if make_engine
            else FakeEngine(request.entry.index, len(request.manifest.stages), cells=request.cells or cells)
        )
        peer.engines.append(engine)
        return engine

    run = partial(
        serve,
        listeners,
        options or PeerOptions(key=KEY),
        store=store or FakeStore([manifest(stages)]),
        engine_factory=create,
    )
    async with closing_links(), trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield peer
        nursery.cancel_scope.cancel()


_dialled: list[Link] = []
_depth = 0


@asynccontextmanager
async def closing_links() -> AsyncIterator[None]:
    """Close all links of a test when the outermost of these blocks ends."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            with trio.CancelScope(shield=True):
                for link in _dialled:
                    await link.aclose()
            _dialled.clear()


async def _dial(address: Address, purpose: Purpose) -> Link:
    link = await dial(address, KEY, purpose=purpose)
    _dialled.append(link)
    return link


@dataclass
class Coordinator:
    """The links of one chain. Frames on control links that nobody waits for are kept."""

    opens: list[Open]
    controls: list[Link]
    upstream: Link
    returning: Link
    ready: list[Ready]
    sequence: int = 0

    async def send(self, *slices: Slice) -> None:
        frame = batch(*slices, sequence=self.sequence, epoch=self.opens[0].epoch)
        self.sequence += 1
        await self.upstream.send(frame)

    async def result(self) -> Result:
        frame = await self.returning.receive()
        assert isinstance(frame, Result), frame
        return frame

    async def round(self, *slices: Slice) -> Result:
        await self.send(*slices)
        return await self.result()

    async def statistics(self, stage: int = 0) -> Stats:
        await self.controls[stage].send(StatsRequest())
        return await until(self.controls[stage], Stats)

    async def wait_statistics(self, condition: Callable[[Stats], bool], stage: int = 0) -> Stats:
        """The first STATS that fulfil a condition."""
        while True:
            statistics = await self.statistics(stage)
            if condition(statistics):
                return statistics
            await trio.sleep(0.001)

    async def close(self) -> None:
        for link in (self.upstream, self.returning, *self.controls):
            await link.aclose()


async def until(link: Link, wanted: type[FrameType]) -> FrameType:
    """The next frame of a kind; only PROGRESS may come before it."""
    while True:
        frame = await link.receive()
        if isinstance(frame, wanted):
            return frame
        assert isinstance(frame, Progress), frame


async def control(address: Address) -> Link:
    return await _dial(address, Purpose.CONTROL)


async def attach(
    address: Address, open_: Open, role: AttachRole, *, epoch: int | None = None
) -> tuple[Link, Frame]:
    """A data link and the answer to ATTACH; its limits are set when it was accepted."""
    link = await _dial(address, Purpose.DATA)
    wanted = Epoch(epoch or open_.epoch)
    await link.send(Attach(open_.chain, wanted, open_.stage, role))
    answer = await link.receive()
    if isinstance(answer, Attached):
        upstream = role is AttachRole.UPSTREAM
        link.set_limits(upstream_limits(open_) if upstream else downstream_limits(open_))
    return link, answer


async def attached(address: Address, open_: Open, role: AttachRole) -> Link:
    """Asks again after NOT_YET."""
    while True:
        link, answer = await attach(address, open_, role)
        if isinstance(answer, Attached):
            return link
        assert not isinstance(answer, Error), answer
        await link.aclose()
        await trio.sleep(0.001)


def opens_for(addresses: Sequence[Address], **changes: object) -> list[Open]:
    stages = len(addresses)
    following = [*addresses[1:], None]
    return [opening(index, stages, next_address=following[index], **changes) for index in range(stages)]


async def open_chain(
    addresses: Sequence[Address], *, opens: list[Open] | None = None, **changes: object
) -> Coordinator:
    """Open a chain over peers, one stage each."""
    controls = [await control(address) for address in addresses]
    return await open_over(controls, addresses, opens=opens, **changes)


async def open_over(
    controls: list[Link],
    addresses: Sequence[Address],
    *,
    opens: list[Open] | None = None,
    **changes: object,
) -> Coordinator:
    """The same over control links that are there already, as for a new epoch."""
    opens = opens or opens_for(addresses, **changes)
    for link, open_ in zip(controls, opens, strict=True):
        await link.send(open_)
    upstream = await attached(addresses[0], opens[0], AttachRole.UPSTREAM)
    returning = await attached(addresses[-1], opens[-1], AttachRole.RETURN)
    ready = [await until(link, Ready) for link in controls]
    return Coordinator(opens, controls, upstream, returning, ready)


def chain_id(letter: str) -> ChainId:
    return ChainId(letter * 32)


def stage_index(number: int) -> StageIndex:
    return StageIndex(number)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Until a condition about this process holds; pytest's timeout ends it when it never does."""
    while not condition():  # noqa: ASYNC110 (another thread makes it true)
        await trio.sleep(0.001)
