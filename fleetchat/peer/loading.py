"""Shards that are loaded: each once for every (build, stage, engine, precision), shared by the chains.

The budget of a stage's cells is shared out here: the sum of all grants never exceeds it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import trio

from fleetchat.cutter.manifest import Manifest, StageEntry, StoredFile
from fleetchat.engine.interface import EngineTraits, StageEngine
from fleetchat.errors import FleetchatError, ShardDamaged
from fleetchat.ids import BuildKey
from fleetchat.peer.faults import ChainFault
from fleetchat.peer.inference import InferenceThread
from fleetchat.peer.opening import granted_cells
from fleetchat.peer.queue import ServedKey
from fleetchat.wire.frames import FaultCode, Open

LARGE = 1_000_000_000  # bytes of a shard
IDLE_STAGES = 2  # loaded shards that no chain uses and that are kept for the next chat
STOP_DEADLINE = 2.0  # seconds for a thread to end; a long prefill is not waited for

_log = logging.getLogger(__name__)


class ShardStore(Protocol):
    """What a peer needs of `cutter.received.PeerStore`."""

    def builds(self) -> Sequence[Manifest]: ...

    def find(self, build_key: BuildKey, stage: int) -> Manifest | None: ...

    def stage_xml(self, manifest: Manifest, index: int) -> Path: ...

    def verify(self, manifest: Manifest, stage: int) -> None: ...

    def begin(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> Reception: ...


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """All that an engine is made from. `cells` None: from the free memory, which `sharers` stages divide.

    `on_step` hears what is done, `on_settings` which settings are in force and why.
    """

    xml: Path
    manifest: Manifest
    entry: StageEntry
    precision: str
    engine: str
    device: str
    threads: int
    cells: int | None
    sharers: int = 1
    on_step: Callable[[str], None] = lambda step: None
    on_settings: Callable[[str], None] = lambda settings: None


class Reception(Protocol):
    """What `cutter.received.Reception` says of a shard that is arriving. Its methods read and write files."""

    offsets: list[int]

    @property
    def complete(self) -> bool: ...

    @property
    def bytes_here(self) -> int: ...

    @property
    def bytes_wanted(self) -> int: ...

    def write(self, number: int, offset: int, payload: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None: ...


EngineFactory = Callable[[EngineRequest], StageEngine]


class StageKey(NamedTuple):
    """What makes two loaded shards the same."""

    build_key: BuildKey
    stage: int
    engine: str
    precision: str


def loading_words(entry: StageEntry) -> str:
    """What a stage is doing that loads; with the size where that takes long: 20 to 30 s a GB on two cores."""
    size = entry.bin.size
    return f"loading the shard of {size / 1e9:.1f} GB" if size >= LARGE else "loading the shard"


@dataclass(slots=True, eq=False)
class LoadedStage:
    """A shard and the thread that serves it. `step` is (what, done, total) while it loads.

    `settings` are those that OpenVINO runs it with, and why, in words.
    """

    key: StageKey
    manifest: Manifest
    thread: InferenceThread
    step: tuple[str, int, int]
    users: set[ServedKey] = field(default_factory=set)
    grants: dict[ServedKey, int] = field(default_factory=dict)
    engine: StageEngine | None = None
    settings: str = ""

    def on_step(self, what: str) -> None:
        self.step = (what, 1, 2)

    def on_settings(self, settings: str) -> None:
        self.settings = settings

    @property
    def traits(self) -> EngineTraits:
        assert self.engine is not None, "not loaded yet"
        return self.engine.traits

    def grant(self, user: ServedKey, open_: Open) -> int:
        """Cells for one more chain. Raises ChainFault (cells)."""
        granted = sum(self.grants.values())
        cells = granted_cells(open_, self.manifest, self.traits, granted=granted)
        self.grants[user] = cells
        return cells


class LoadedStages:
    """All shards of this peer. Called from the trio thread."""

    def __init__(
        self,
        store: ShardStore,
        engine_factory: EngineFactory,
        *,
        device: str,
        threads: int,
        cells: int | None,
        stages_here: int = 1,
    ) -> None:
        """`stages_here` are known to share the memory of this machine."""
        self.device = device
        self._store = store
        self._engine_factory = engine_factory
        self._threads = threads
        self._cells = cells
        self._stages_here = stages_here
        self._stages: dict[StageKey, LoadedStage] = {}  # those without users: least recently used first

    def enter(self, user: ServedKey, open_: Open, manifest: Manifest) -> LoadedStage:
        """The stage for a chain; it begins to load when it is not there yet."""
        key = StageKey(manifest.build_key, open_.stage, open_.engine, open_.precision)
        stage = self._stages.get(key) or self._begin_to_load(key, manifest)
        stage.users.add(user)
        return stage

    async def wait_loaded(self, stage: LoadedStage) -> None:
        """Raises ChainFault when the shard is damaged or the engine cannot be made."""
        try:
            stage.engine = await stage.thread.wait_loaded()
        except ShardDamaged as error:
            self._forget(stage)
            raise ChainFault(FaultCode.SHARD_DAMAGED, error.message, hint=error.hint) from error
        except FleetchatError as error:
            self._forget(stage)
            raise ChainFault(FaultCode.ENGINE, error.message, hint=error.hint) from error
        except Exception as error:  # whatever OpenVINO raises
            self._forget(stage)
            _log.error("stage %d could not be loaded", stage.key.stage, exc_info=error)
            raise ChainFault(
                FaultCode.ENGINE,
                f"the shard could not be loaded: {type(error).__name__}: {error}",
                hint="`fleetchat doctor` on the peer says what works there",
            ) from error

    def leave(self, stage: LoadedStage, user: ServedKey) -> None:
        """A chain is done with a stage: its grant is free, the shard stays for the next one."""
        stage.thread.drop_chain(user)
        stage.users.discard(user)
        stage.grants.pop(user, None)
        if stage.users or self._stages.get(stage.key) is not stage:
            return
        self._stages[stage.key] = self._stages.pop(stage.key)  # now the most recently used one
        idle = [other for other in self._stages.values() if not other.users]
        for other in idle[: max(0, len(idle) - IDLE_STAGES)]:
            self._forget(other)

    async def aclose(self) -> None:
        """End all threads. One that is in a long inference is left behind: it ends with the process."""
        stages = list(self._stages.values())
        for stage in stages:
            self._forget(stage)
        with trio.move_on_after(STOP_DEADLINE) as scope:
            scope.shield = True
            for stage in stages:
                await stage.thread.wait_ended()

    def _forget(self, stage: LoadedStage) -> None:
        if self._stages.get(stage.key) is stage:
            del self._stages[stage.key]
        stage.thread.stop()

    def _begin_to_load(self, key: StageKey, manifest: Manifest) -> LoadedStage:
        begun = threading.Event()

        def load() -> StageEngine:
            begun.wait()
            self._store.verify(manifest, key.stage)
            stage.on_step(loading_words(manifest.stages[key.stage]))
            engine = self._engine_factory(self._request(stage))
            stage.step = (stage.step[0], 2, 2)
            return engine

        thread = InferenceThread(f"stage-{key.stage}", load)
        stage = LoadedStage(key, manifest, thread, step=("checking the shard", 0, 2))
        self._stages[key] = stage
        begun.set()
        return stage

    def _request(self, stage: LoadedStage) -> EngineRequest:
        key, manifest = stage.key, stage.manifest
        return EngineRequest(
            xml=self._store.stage_xml(manifest, key.stage),
            manifest=manifest,
            entry=manifest.stages[key.stage],
            precision=key.precision,
            engine=key.engine,
            device=self.device,
            threads=self._threads,
            cells=self._cells,
            sharers=max(self._stages_here, len(self._stages)),
            on_step=stage.on_step,
            on_settings=stage.on_settings,
        )
