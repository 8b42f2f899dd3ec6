"""Every peer has its shard before the chain opens: who lacks it is sent it, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from fleetchat.cutter.store import Store, megabytes
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.push import Delivery, Shard, push_shard
from fleetchat.ids import Address
from fleetchat.transport.tasks import open_tasks


@dataclass(slots=True)
class Deliveries:
    """How far all shards are, in one line."""

    note: Callable[[str], None]
    peers: dict[Address, Delivery] = field(default_factory=dict)

    def update(self, address: Address, delivery: Delivery) -> None:
        """Tell it, unless nothing is to be sent."""
        self.peers[address] = delivery
        if delivery.here < delivery.total:
            self.note(self.line())

    def line(self) -> str:
        """Peers that have had everything before do not count."""
        sent = {address: one for address, one in self.peers.items() if one.sent or one.here < one.total}
        to = str(next(iter(sent))) if len(sent) == 1 else f"{len(sent)} peers"
        here = sum(one.here for one in sent.values())
        total = sum(one.total for one in sent.values())
        what = "the shard" if len(sent) == 1 else "the shards"
        return f"sending {what} to {to}: {megabytes(here)} of {megabytes(total)}"


async def provide_shards(
    options: FleetOptions, peers: Mapping[int, Address], key: bytes, on_progress: Callable[[str], None]
) -> None:
    """Bring each stage's shard to the peer that is to serve it; what is there is not sent.

    `on_progress` gets a line now and then. Raises what `push_shard` raises for the first that fails.
    """
    folder = Store(options.store_root).folder(options.manifest.build_key)
    deliveries = Deliveries(on_progress)
    started = trio.current_time()
    async with open_tasks() as tasks:
        for stage, address in peers.items():
            shard = Shard(options.manifest, stage, folder)
            tasks.start_soon(_bring, address, key, shard, deliveries)
    sent = sum(one.sent for one in deliveries.peers.values())
    if sent:
        seconds = max(trio.current_time() - started, 0.001)
        on_progress(
            f"sent {megabytes(sent)} of shards in {seconds:.1f} s ({megabytes(int(sent / seconds))}/s)"
        )


async def _bring(address: Address, key: bytes, shard: Shard, deliveries: Deliveries) -> None:
    delivery = await push_shard(
        address, key, shard, on_progress=lambda delivery: deliveries.update(address, delivery)
    )
    deliveries.update(address, delivery)
