"""Who serves which stage: embedded processes, configured addresses, and the spares that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import trio

from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.options import FleetOptions, available_cores, threads_note, threads_per_stage
from fleetchat.ids import Address
from fleetchat.paths import log_folder


class Peers(Protocol):
    """What the supervisor needs to know of them, and can do for them."""

    @property
    def addresses(self) -> list[Address]:
        """Where each stage is served now."""

    @property
    def spares(self) -> int:
        """How many addresses wait to take a place."""

    def is_embedded(self, stage: int) -> bool:
        """Whether `restart` can be had."""

    def ended(self) -> list[int]:
        """Stages whose process has ended."""

    async def restart(self, stage: int) -> None:
        """End the process of an embedded stage, whatever it does, and start another. Raises FleetError."""

    def take_spare(self, stage: int, *, keep: bool) -> None:
        """Let a spare serve the stage; with `keep` the lost peer becomes the last spare."""

    def set_spares(self, addresses: Iterable[Address]) -> None:
        """From now on these wait; those that serve a stage already do not."""

    async def aclose(self) -> None:
        """End the processes that were started, if any."""


class OwnPeers:
    """Starts what is embedded, and knows the rest by address."""

    def __init__(self, options: FleetOptions, key: bytes, on_progress: Callable[[str], None]) -> None:
        self.addresses: list[Address] = []
        self._options = options
        self._key = key
        self._on_progress = on_progress
        self._threads = threads_per_stage(options, available_cores())
        self._processes: dict[int, tuple[AsyncExitStack, trio.Process]] = {}
        self._spares = deque(spare.address for spare in options.spares if spare.address is not None)

    @property
    def spares(self) -> int:
        return len(self._spares)

    def is_embedded(self, stage: int) -> bool:
        return self._options.peers[stage].address is None

    def ended(self) -> list[int]:
        return [stage for stage, (_, process) in self._processes.items() if process.returncode is not None]

    def process(self, stage: int) -> trio.Process:
        """Of an embedded stage. Fault injection and measurements need its number."""
        return self._processes[stage][1]

    async def start(self) -> None:
        """Raises FleetError when a process does not start."""
        if note := threads_note(self._options, available_cores()):
            self._on_progress(note)
        for stage, peer in enumerate(self._options.peers):
            if peer.address is not None:
                self.addresses.append(peer.address)
                continue
            self._on_progress(f"starting shard peer {stage}")
            self.addresses.append(await self._start(stage))

    async def restart(self, stage: int) -> None:
        self._on_progress(f"starting shard peer {stage} again")
        await self._end(stage)
        self.addresses[stage] = await self._start(stage)

    def take_spare(self, stage: int, *, keep: bool) -> None:
        lost, self.addresses[stage] = self.addresses[stage], self._spares.popleft()
        if keep:
            self._spares.append(lost)

    def set_spares(self, addresses: Iterable[Address]) -> None:
        self._spares = deque(address for address in addresses if address not in self.addresses)

    async def aclose(self) -> None:
        """End all processes, in order."""
        for stage in list(self._processes):
            stack, _ = self._processes.pop(stage)
            await stack.aclose()

    async def _end(self, stage: int) -> None:
        if stage not in self._processes:
            return  # the start before this one failed
        stack, process = self._processes.pop(stage)
        process.kill()  # it may hang, or be stopped
        await stack.aclose()

    async def _start(self, stage: int) -> Address:
        options = self._options
        async with AsyncExitStack() as stack:
            address, process = await stack.enter_async_context(
                embedded_peer(
                    key=self._key,
                    store_root=options.store_root,
                    threads=self._threads,
                    log_file=log_folder() / f"peer-{stage}.log",
                    core=options.cores[stage % len(options.cores)] if options.cores else None,
                    kv_cells=options.kv_cells,
                    stages_here=sum(peer.address is None for peer in options.peers),
                    device=options.peers[stage].device,
                )
            )
            self._processes[stage] = (stack.pop_all(), process)
        return address


async def start_peers(options: FleetOptions, key: bytes, on_progress: Callable[[str], None]) -> OwnPeers:
    """The peers of a fleet; whoever asked for them closes them. Raises FleetError."""
    peers = OwnPeers(options, key, on_progress)
    try:
        await peers.start()
    except BaseException:
        with trio.CancelScope(shield=True):
            await peers.aclose()
        raise
    return peers


@asynccontextmanager
async def started_peers(
    options: FleetOptions, key: bytes, on_progress: Callable[[str], None]
) -> AsyncIterator[OwnPeers]:
    """The peers of a fleet; the processes among them end with it. Raises FleetError."""
    peers = await start_peers(options, key, on_progress)
    try:
        yield peers
    finally:
        with trio.CancelScope(shield=True):
            await peers.aclose()
