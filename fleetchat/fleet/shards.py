"""Every peer has its shard before the chain opens: who lacks it is sent it, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from fleetchat.cutter.store import Store, megabytes
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.push import Delivery, Shard, push_shard
from fleetchat.ids import Address
from fleetchat.transport.tasks import open_tasks


async def provide_shards(
    options: FleetOptions, peers: Mapping[int, Address], key: bytes, on_progress: Callable[[str], None]
) -> None:
    """Bring each stage's shard to the peer that is to serve it; what is there is not sent.

    `on_progress` gets a line now and then. Raises what `push_shard` raises for the first that fails.
    """
    folder = Store(options.store_root).folder(options.manifest.build_key)
    async with open_tasks() as tasks:
        for stage, address in peers.items():
            shard = Shard(options.manifest, stage, folder)
            tasks.start_soon(_bring, address, key, shard, on_progress)


async def _bring(address: Address, key: bytes, shard: Shard, on_progress: Callable[[str], None]) -> None:
    started = trio.current_time()

    def note(delivery: Delivery) -> None:
        if delivery.here < delivery.total:
            on_progress(
                f"{_named(shard, address)}: {megabytes(delivery.here)} of {megabytes(delivery.total)}"
            )

    delivery = await push_shard(address, key, shard, on_progress=note)
    if delivery.sent:
        seconds = max(trio.current_time() - started, 0.001)
        rate = delivery.sent / seconds
        on_progress(
            f"{_named(shard, address)}: done, {megabytes(delivery.sent)} in {seconds:.1f} s "
            f"({megabytes(int(rate))}/s)"
        )


def _named(shard: Shard, address: Address) -> str:
    return f"sending the shard of stage {shard.stage} to {address}"
