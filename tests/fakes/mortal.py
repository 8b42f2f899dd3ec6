"""A fleet whose peers can be killed, stopped and cut off, on fake engines in this process.

Deadlines are scaled down; the real ones differ by a factor of ten or more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from fleetchat.engine.interface import StageEngine
from fleetchat.errors import FleetError
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import Speculation
from fleetchat.ids import Address
from fleetchat.peer.loading import EngineFactory, EngineRequest, ShardStore
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.chain import KEY, FakeStore
from tests.fakes.door import Door, open_door
from tests.peer.builders import manifest

HASTY = Deadlines(
    ping=0.02,
    stalled=0.15,
    lost=0.5,
    missing=0.5,
    pause=0.01,
    longest_pause=0.04,
    recovery=3.0,
    attempts=4,
)
MakeEngine = Callable[[int, int], StageEngine]  # (stage, how often it was started) -> its engine


class MortalPeers:
    """Starts a peer for each stage behind a door. `embedded` says whether the fleet may restart them."""

    def __init__(
        self,
        nursery: trio.Nursery,
        store: ShardStore,
        factory: Callable[[int, int], EngineFactory],
        *,
        embedded: bool = True,
    ) -> None:
        self.addresses: list[Address] = []
        self.doors: list[Door] = []
        self.starts: list[int] = []
        self.embedded = embedded
        self.unwilling: str = ""  # why no peer starts any more
        self.spare_doors: list[Door] = []
        self._nursery, self._store, self._factory = nursery, store, factory
        self._scopes: list[trio.CancelScope] = []

    @property
    def spares(self) -> int:
        return len(self.spare_doors)

    def is_embedded(self, stage: int) -> bool:
        return self.embedded

    def ended(self) -> list[int]:
        return []

    async def add(
        self, stage: int, stack: AsyncExitStack, *, spare: bool = False, store: ShardStore | None = None
    ) -> None:
        target = await self._start(stage, store)
        door = await stack.enter_async_context(open_door(target))
        if spare:
            self.spare_doors.append(door)
        else:
            self.doors.append(door)
            self.addresses.append(door.address)

    async def restart(self, stage: int) -> None:
        self.doors[stage].cut()
        if self.unwilling:
            raise FleetError(self.unwilling)
        self._scopes[stage].cancel()
        self.doors[stage].target = await self._start(stage)

    def take_spare(self, stage: int, *, keep: bool) -> None:
        lost, self.doors[stage] = self.doors[stage], self.spare_doors.pop(0)
        self.addresses[stage] = self.doors[stage].address
        if keep:
            self.spare_doors.append(lost)

    def set_spares(self, addresses: Iterable[Address]) -> None:
        raise AssertionError("spares are doors here")

    async def aclose(self) -> None:
        """They end with the test."""

    def leave(self, stage: int) -> None:
        """As by SIGTERM: the peer says GOODBYE and ends."""
        self._scopes[stage].cancel()

    async def _start(self, stage: int, store: ShardStore | None = None) -> Address:
        while len(self.starts) <= stage:
            self.starts.append(0)
            self._scopes.append(trio.CancelScope())
        number, self.starts[stage] = self.starts[stage], self.starts[stage] + 1
        scope = self._scopes[stage] = trio.CancelScope()
        factory = self._factory(stage, number)
        address: Address = await self._nursery.start(self._serve, factory, scope, store or self._store)
        return address

    async def _serve(
        self,
        factory: EngineFactory,
        scope: trio.CancelScope,
        store: ShardStore,
        task_status: trio.TaskStatus[Address],
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        options = PeerOptions(KEY, ping=HASTY.ping, silence=HASTY.lost + 3 * HASTY.ping)
        with scope:
            task_status.started(Address(*listeners[0].socket.getsockname()[:2]))
            await serve(listeners, options, store=store, engine_factory=factory)


@dataclass
class Mortal:
    """What a test gets. `told` are the sentences that the user saw."""

    fleet: Fleet
    peers: MortalPeers
    told: list[str] = field(default_factory=list)

    @property
    def doors(self) -> list[Door]:
        return self.peers.doors


@asynccontextmanager
async def mortal_fleet(
    make: MakeEngine,
    stages: int = 2,
    *,
    kv: str = "masked",
    drafter: Drafter | None = None,
    depth: int | None = None,
    context: int = 256,
    embedded: bool = True,
    spare_of: int | None = None,
    deadlines: Deadlines = HASTY,
) -> AsyncIterator[Mortal]:
    """`make` gives the engine of a stage; `spare_of` starts one more peer that can serve that stage."""
    build = manifest(stages, context=context)

    def factory(stage: int, number: int) -> EngineFactory:
        def create(request: EngineRequest) -> StageEngine:
            return make(stage, number)

        return create

    options = FleetOptions(
        manifest=build,
        store_root=Path("unused"),
        peers=(PeerSpec(None),) * stages,
        precision="fast",
        kv=kv,
        context=context,
        connect_deadline=1.0,
        deadlines=deadlines,
    )
    speculation = Speculation(drafter or NoDrafter(), depth=depth, max_draft=8, vocabulary=build.vocabulary)
    async with mortal_over(
        options, FakeStore(build), factory, speculation, embedded=embedded, spare_of=spare_of
    ) as mortal:
        yield mortal


@asynccontextmanager
async def mortal_over(
    options: FleetOptions,
    store: ShardStore,
    factory: Callable[[int, int], EngineFactory],
    speculation: Speculation,
    *,
    embedded: bool = True,
    spare_of: int | None = None,
    spare_store: ShardStore | None = None,
) -> AsyncIterator[Mortal]:
    """The same over a store and engines of the caller's. The spare may have a store of its own."""
    stages = len(options.manifest.stages)
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        peers = MortalPeers(nursery, store, factory, embedded=embedded)
        for stage in range(stages):
            await peers.add(stage, stack)
        if spare_of is not None:
            await peers.add(spare_of, stack, spare=True, store=spare_store)
        async with keep_fleet(options, KEY, peers, speculation) as fleet:
            mortal = Mortal(fleet, peers)
            fleet.on_trouble = mortal.told.append
            yield mortal
        nursery.cancel_scope.cancel()
