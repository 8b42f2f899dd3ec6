"""A whole fleet in one process: real peers on loopback sockets, fake engines behind them.

The reply depends on session and position alone (`tests.fakes.engine`), so a lost, doubled or foreign
token fails at once, without a model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.received import Reception
from fleetchat.engine.interface import StageEngine
from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import Fleet, OpenLegs, keep_fleet
from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.speculation import Speculation
from fleetchat.ids import Address, BuildKey
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.engine import FakeEngine, Mischief, Oracle, by_position
from tests.fakes.peers import FixedPeers
from tests.peer.builders import manifest

KEY = bytes(range(32))
PATIENT = Deadlines(recovery=0.0, attempts=1)
"""Where nobody is to come back: one attempt, then the fleet has failed."""


class Letters:
    """Decodes the fake engine's tokens: ASCII."""

    def push(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


@dataclass
class FakeStore:
    """Holds one build in name only."""

    build: Manifest

    def builds(self) -> Sequence[Manifest]:
        return [self.build]

    def find(self, build_key: BuildKey, stage: int) -> Manifest | None:
        return self.build if build_key == self.build.build_key else None

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        return Path(f"stage-{index}.xml")

    def verify(self, manifest: Manifest, stage: int) -> None:
        """Nothing to verify."""

    def begin(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> Reception:
        raise InputError("no shard is taken here")


@dataclass
class FakeFleet:
    """What a test gets: the fleet, and the engines to look at."""

    fleet: Fleet
    engines: list[FakeEngine]
    peers: list[trio.CancelScope] = field(default_factory=list)  # cancel one: that peer dies


@asynccontextmanager
async def fake_fleet(
    stages: int = 2,
    *,
    oracle: Oracle = by_position,
    context: int = 64,
    cells: int = 1 << 16,
    mischief: Sequence[Mischief] | None = None,
    key: bytes = KEY,
    peer_key: bytes = KEY,
    asked_manifest: Manifest | None = None,
    drafter: Drafter | None = None,
    depth: int | None = None,
    max_draft: int = 8,
    legs: OpenLegs | None = None,
    trace_file: Path | None = None,
    deadlines: Deadlines = PATIENT,
) -> AsyncIterator[FakeFleet]:
    """`mischief` has an entry a stage. `asked_manifest` is what the coordinator believes in."""
    build = manifest(stages, context=context)
    engines = [
        FakeEngine(
            stage, stages, oracle=oracle, cells=cells, mischief=mischief[stage] if mischief else Mischief()
        )
        for stage in range(stages)
    ]
    async with fleet_over_engines(
        engines,
        build,
        context=context,
        key=key,
        peer_key=peer_key,
        asked_manifest=asked_manifest,
        drafter=drafter,
        depth=depth,
        max_draft=max_draft,
        legs=legs,
        trace_file=trace_file,
        deadlines=deadlines,
    ) as (fleet, scopes):
        yield FakeFleet(fleet, engines, scopes)


@asynccontextmanager
async def fleet_over_engines(
    engines: Sequence[StageEngine],
    build: Manifest,
    *,
    kv: str = "masked",
    precision: str = "fast",
    context: int = 64,
    kv_cells: int | None = None,
    key: bytes = KEY,
    peer_key: bytes = KEY,
    asked_manifest: Manifest | None = None,
    drafter: Drafter | None = None,
    depth: int | None = None,
    max_draft: int = 8,
    legs: OpenLegs | None = None,
    trace_file: Path | None = None,
    deadlines: Deadlines = PATIENT,
) -> AsyncIterator[tuple[Fleet, list[trio.CancelScope]]]:
    """A fleet over one peer for each engine, and the scopes that end a peer each."""
    async with trio.open_nursery() as nursery:
        addresses, scopes = [], []
        for engine in engines:
            scope = trio.CancelScope()
            addresses.append(await nursery.start(_serve_one, engine, build, peer_key, scope))
            scopes.append(scope)
        options = FleetOptions(
            manifest=asked_manifest or build,
            store_root=Path("unused"),
            peers=tuple(PeerSpec(address) for address in addresses),
            precision=precision,
            kv=kv,
            context=context,
            kv_cells=kv_cells,
            connect_deadline=2.0,
            trace_file=trace_file,
            deadlines=deadlines,
        )
        speculation = Speculation(
            drafter or NoDrafter(), depth=depth, max_draft=max_draft, vocabulary=build.vocabulary
        )
        try:
            async with keep_fleet(options, key, FixedPeers(addresses), speculation, legs=legs) as fleet:
                yield fleet, scopes
        finally:
            nursery.cancel_scope.cancel()


async def _serve_one(
    engine: StageEngine,
    build: Manifest,
    key: bytes,
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[Address],
) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

    def make(request: EngineRequest) -> StageEngine:
        return engine

    with scope:
        task_status.started(Address(*listeners[0].socket.getsockname()[:2]))
        await serve(listeners, PeerOptions(key), store=FakeStore(build), engine_factory=make)


def request(
    token_ids: Sequence[int],
    *,
    max_tokens: int = 1000,
    stop_ids: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    temperature: float = 0.0,
    seed: int = 1,
) -> GenerationRequest:
    return GenerationRequest(
        token_ids=tuple(token_ids),
        sampling=SamplingSettings(temperature=temperature),
        seed=seed,
        max_tokens=max_tokens,
        stop_ids=frozenset(stop_ids),
        stop_strings=tuple(stop_strings),
    )
