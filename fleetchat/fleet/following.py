"""A fleet that serves follows its configuration: peers that were added or removed, another cut, spares.

Whoever changes `fleet.toml`, the chat itself or another terminal, changes the running fleet in the same way.
The file is looked at every second; a change counts when it has settled, and one that comes while a move is
prepared takes its place.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from fleetchat.config import Config
from fleetchat.config.settings import FleetSettings
from fleetchat.errors import ConfigError, FleetchatError
from fleetchat.fleet.configured import prepare_fleet
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.moving import described
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.provision import BuildProgress
from fleetchat.transport.tasks import open_tasks

INTERVAL = 1.0  # seconds between two looks at the files

Signature = tuple[tuple[int, int] | None, ...]  # time of change and size of each file; None: it is not there
Prepare = Callable[[Config, Callable[[BuildProgress], None]], Awaitable[FleetOptions]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where the configuration comes from: `read` as at the start, and the files that it may be read from."""

    read: Callable[[], Config]
    files: Callable[[], Sequence[Path]]

    def signature(self) -> Signature:
        """Differs when a file was written."""
        return tuple(_state(path) for path in self.files())


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def _prepare(config: Config, on_build: Callable[[BuildProgress], None]) -> FleetOptions:
    return await prepare_fleet(config, on_build=on_build)


class Follower:
    """Moves one fleet. `config` is what it was opened with, `seen` the files' state when it was read."""

    def __init__(
        self,
        fleet: Fleet,
        source: ConfigSource,
        config: Config,
        seen: Signature,
        *,
        interval: float = INTERVAL,
        prepare: Prepare = _prepare,
    ) -> None:
        self._fleet = fleet
        self._source = source
        self._config = config
        self._wanted: FleetSettings | None = config.fleet  # None: a move failed, and may be tried again
        self._seen = seen
        self._interval = interval
        self._prepare = prepare

    async def run(self) -> None:
        """Until it is cancelled."""
        async with open_tasks() as tasks:
            under_way = trio.CancelScope()
            while True:
                await self._wait_changed()
                wanted = await self._read()
                if wanted is None or wanted == self._wanted:
                    continue
                under_way.cancel()
                under_way = trio.CancelScope()
                self._wanted = wanted
                tasks.start_soon(self._follow, wanted, under_way)

    async def _wait_changed(self) -> None:
        """Until the files differ from what was seen, and stay as they are."""
        before = self._seen
        while True:
            await trio.sleep(self._interval)
            now = await trio.to_thread.run_sync(self._source.signature)
            if now == before != self._seen:
                self._seen = now
                return
            before = now

    async def _read(self) -> FleetSettings | None:
        try:
            return (await trio.to_thread.run_sync(self._source.read)).fleet
        except ConfigError as error:
            self._stay(error)
            return None

    async def _follow(self, wanted: FleetSettings, scope: trio.CancelScope) -> None:
        with scope:
            try:
                options = await self._options(dataclasses.replace(self._config, fleet=wanted))
                await self._fleet.move_to(options)
            except (FleetchatError, OSError) as error:
                self._wanted = None
                self._stay(error)

    async def _options(self, config: Config) -> FleetOptions:
        """As the fleet was opened, but for peers, cut and key. Raises FleetchatError, OSError."""
        fleet, current = self._fleet, self._fleet.options

        def note(build: BuildProgress) -> None:
            share = f" {100 * build.done // build.total} %" if build.total else ""
            fleet.note_moving(f"building the shards of another cut: {build.step}{share}")

        try:
            wanted = await self._prepare(config, note)
        finally:
            fleet.note_moving("")
        if wanted.manifest.source != current.manifest.source:
            raise ConfigError(
                f"{config.file} names another model; a fleet that serves keeps its own",
                hint="change the model by /model, or start the chat again",
            )
        return dataclasses.replace(
            current,
            manifest=wanted.manifest,
            peers=wanted.peers,
            spares=wanted.spares,
            key=wanted.key,
            kv=wanted.kv,
            named_in=wanted.named_in,
        )

    def _stay(self, error: FleetchatError | OSError) -> None:
        """The fleet serves on as it did, and says why."""
        text, hint = (error.message, error.hint) if isinstance(error, FleetchatError) else (str(error), None)
        log.warning("not moved: %s", text)
        told = f"{described(self._fleet.options)} serve on: {text}{f' ({hint})' if hint else ''}"
        self._fleet.note_event(EventKind.STAYED, told)
