"""Standing peers on fake engines that serve any stage of several builds: what a fleet moves between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.received import Reception
from fleetchat.engine.interface import StageEngine
from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import Speculation
from fleetchat.ids import Address, BuildKey
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.chain import KEY
from tests.fakes.engine import FakeEngine, by_position
from tests.fakes.mortal import HASTY
from tests.fakes.peers import FixedPeers
from tests.peer.builders import manifest

MakeEngine = Callable[[EngineRequest], StageEngine]
CELLS = 1 << 14


def fake_engine(request: EngineRequest) -> FakeEngine:
    stages = len(request.manifest.stages)
    return FakeEngine(request.entry.index, stages, oracle=by_position, cells=CELLS, name=request.engine)


def cut(stages: int) -> Manifest:
    """A build of the same model in so many stages."""
    return replace(manifest(stages, context=256), build_key=BuildKey(f"{stages:064}"))


@dataclass
class Builds:
    """A store that has them in name only."""

    known: Sequence[Manifest]

    def builds(self) -> Sequence[Manifest]:
        return self.known

    def find(self, build_key: BuildKey, stage: int) -> Manifest | None:
        return next((one for one in self.known if one.build_key == build_key), None)

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        return Path(f"stage-{index}.xml")

    def verify(self, manifest: Manifest, stage: int) -> None:
        """Nothing to verify."""

    def begin(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> Reception:
        raise InputError("no shard is taken here")


@dataclass
class Standing:
    """Peers by their names; `end` lets one die."""

    nursery: trio.Nursery
    addresses: dict[str, Address] = field(default_factory=dict)
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)

    async def start(self, name: str, make: MakeEngine = fake_engine) -> None:
        scope = self.scopes[name] = trio.CancelScope()
        self.addresses[name] = await self.nursery.start(_serve, make, scope)

    def end(self, name: str) -> None:
        self.scopes[name].cancel()

    def options(self, names: str, spares: str = "") -> FleetOptions:
        """A fleet of these peers, a letter each."""
        return FleetOptions(
            manifest=cut(len(names)),
            store_root=Path("unused"),
            peers=tuple(PeerSpec(self.addresses[name], name) for name in names),
            spares=tuple(PeerSpec(self.addresses[name], name) for name in spares),
            precision="fast",
            kv="masked",
            context=256,
            key=KEY,
            connect_deadline=2.0,
            deadlines=HASTY,
        )


async def start_fixed(options: FleetOptions, key: bytes, note: Callable[[str], None]) -> FixedPeers:
    assert key == options.key
    addresses = [peer.address for peer in options.peers if peer.address is not None]
    return FixedPeers(addresses, [peer.address for peer in options.spares if peer.address is not None])


async def nothing_to_bring(*_arguments: object) -> None:
    """Instead of `provide_shards`: the peers have every build."""


@asynccontextmanager
async def standing_fleet(
    names: str, others: str = "", engines: Mapping[str, MakeEngine] | None = None
) -> AsyncIterator[tuple[Fleet, Standing]]:
    """A fleet over the peers `names`; `others` stand by. Patch `provide_shards` away first."""
    made = engines or {}
    async with trio.open_nursery() as nursery:
        standing = Standing(nursery)
        for name in names + others:
            await standing.start(name, made.get(name, fake_engine))
        options = standing.options(names)
        speculation = Speculation(
            NoDrafter(), depth=None, max_draft=8, vocabulary=options.manifest.vocabulary
        )
        peers = await start_fixed(options, KEY, lambda line: None)
        async with keep_fleet(options, KEY, peers, speculation, start=start_fixed) as fleet:
            yield fleet, standing
        nursery.cancel_scope.cancel()


async def _serve(make: MakeEngine, scope: trio.CancelScope, task_status: trio.TaskStatus[Address]) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    store = Builds([cut(stages) for stages in (1, 2, 3)])
    with scope:
        task_status.started(Address(*listeners[0].socket.getsockname()[:2]))
        await serve(listeners, PeerOptions(KEY, ping=HASTY.ping), store=store, engine_factory=make)
