"""Moving a fleet that serves to other peers, or to another cut of its model.

The new chain is made ready beside the old one: its processes started, its shards brought to the peers, loaded
and checked. Only then the supervisor leaves the old one, and the sessions are filled anew as after a loss. So
what a reply waits for is the reading of its own text. Stages that have no room for both chains refuse; then
the old one is left first. Whatever fails, the old chain serves on.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from fleetchat.errors import CellsRefused, FleetError
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.epochs import Epoch, Epochs, Target
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.limits import block_room
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.peers import Peers
from fleetchat.fleet.room import MORE_CELLS

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet

StartPeers = Callable[[FleetOptions, bytes, Callable[[str], None]], Awaitable[Peers]]


@dataclass(slots=True, eq=False)
class Offer:
    """A chain that is to take the place of the one that serves.

    `epoch` None: it is not open, because the stages have no room for both. `began` is when the move was asked
    for, in seconds of the trio clock. Whoever takes it settles it.
    """

    target: Target
    epoch: Epoch | None
    began: float
    taken: bool = False
    refusal: FleetError | None = None
    settled: trio.Event = field(default_factory=trio.Event)

    @property
    def serves(self) -> bool:
        """Whether it was taken, and its chain is open."""
        return self.settled.is_set() and self.refusal is None

    def settle(self, refusal: FleetError | None = None) -> None:
        """Its chain serves, or cannot."""
        self.refusal = refusal
        self.settled.set()


class Desk(Protocol):
    """Where offers are handed in: the supervisor."""

    target: Target

    def offer(self, offer: Offer) -> None: ...

    def withdraw(self) -> None: ...


class Mover:
    """One move at a time."""

    def __init__(self, fleet: Fleet, epochs: Epochs, desk: Desk, start: StartPeers) -> None:
        self._fleet, self._epochs, self._desk, self._start = fleet, epochs, desk, start
        self._lock = trio.Lock()

    async def move(self, options: FleetOptions) -> None:
        """See `Fleet.move_to`. A move that is cancelled leaves everything as it was."""
        async with self._lock:
            current = self._desk.target
            if same_chain(options, current.options):
                current.peers.set_spares(peer.address for peer in options.spares if peer.address is not None)
                return
            try:
                await self._move(options)
            finally:
                self._fleet.note_moving("")

    async def _move(self, options: FleetOptions) -> None:
        fleet, began = self._fleet, trio.current_time()
        sentence = f"{described(options)} are made ready"
        fleet.note_event(EventKind.MOVING, sentence)
        fleet.note_moving(sentence)
        key = options.key or secrets.token_bytes(32)
        peers = await self._start(options, key, fleet.note_moving)
        offer = Offer(Target(options, key, peers), None, began)
        try:
            offer.epoch = await self._open(offer.target)
            await self._hand_in(offer)
        finally:
            if not offer.serves:
                with trio.CancelScope(shield=True):
                    if offer.epoch is not None:
                        await offer.epoch.leave()
                    await peers.aclose()

    async def _open(self, target: Target) -> Epoch | None:
        """The new chain beside the old one; None when a stage has no room for both."""
        fleet = self._fleet
        await target.provide(range(len(target.options.peers)), fleet.note_moving)
        try:
            return await self._epochs.open_first(target, beside=fleet.chain, on_progress=fleet.note_moving)
        except CellsRefused as refusal:
            fleet.note_event(EventKind.MOVING, f"the old chain is left first: {refusal.message}")
            return None

    async def _hand_in(self, offer: Offer) -> None:
        self._desk.offer(offer)
        try:
            await offer.settled.wait()
        except trio.Cancelled:
            if not offer.taken:
                self._desk.withdraw()
            else:
                with trio.CancelScope(shield=True):
                    await offer.settled.wait()
            raise
        if offer.refusal is not None:
            raise offer.refusal


def same_chain(one: FleetOptions, other: FleetOptions) -> bool:
    """Whether both serve the same cut on the same peers. Names and spares make no difference."""
    return (
        one.manifest.build_key == other.manifest.build_key
        and [(peer.address, peer.device) for peer in one.peers]
        == [(peer.address, peer.device) for peer in other.peers]
        and (one.key == other.key or all(peer.address is None for peer in one.peers))
    )


def described(options: FleetOptions) -> str:
    """`2 stages (layers 0-17, 18-29)`"""
    entries = options.manifest.stages
    layers = ", ".join(f"{entry.first_layer}-{entry.last_layer}" for entry in entries)
    return f"{len(entries)} stage{'' if len(entries) == 1 else 's'} (layers {layers})"


def check_room(fleet: Fleet, chain: Chain) -> None:
    """Whether all replies under way could go on with `chain`. Raises CellsRefused, in numbers."""
    room = block_room(chain)
    largest = fleet.admission.largest
    if room is not None:
        if not room.fits_at_all(largest):
            raise CellsRefused(
                f"a reply under way may take {largest} KV cells, the new chain has {chain.cells}",
                hint=f"wait until it ends, or {MORE_CELLS}",
            )
        return
    busy = sum(session.generation is not None for session in fleet.sessions)
    if busy > max(1, chain.cells // fleet.reservation):
        raise CellsRefused(
            f"{busy} replies are under way, the new chain has {chain.cells} KV cells, "
            f"{fleet.reservation} for each of them",
            hint=f"wait until some of them end, or {MORE_CELLS}",
        )
