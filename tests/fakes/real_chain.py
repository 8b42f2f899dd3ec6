"""A fleet with real engines on a real build, its peers in this process: fast to open, nothing pretended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.received import PeerStore
from fleetchat.cutter.store import Store
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import Speculation, open_speculation
from fleetchat.ids import Address
from fleetchat.peer.engines import create_engine
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.peers import FixedPeers

KEY = bytes(32)


@asynccontextmanager
async def real_fleet(
    store: Store, manifest: Manifest, *, drafter: Drafter | str = "none", **changes: object
) -> AsyncIterator[Fleet]:
    """`drafter` is a name, or a drafter of the test's own; `changes` are fields of FleetOptions."""
    options = FleetOptions(
        manifest=manifest,
        store_root=store.root,
        peers=(PeerSpec(None),) * len(manifest.stages),
        precision="exact",
        kv="masked",
        context=512,
        kv_cells=8192,
    )
    options = replace(options, **changes)  # type: ignore[arg-type]
    if isinstance(drafter, str):
        speculation = await open_speculation(replace(options, drafter=drafter))
    else:
        speculation = Speculation(
            drafter,
            depth=options.draft_depth,
            max_draft=options.max_draft,
            vocabulary=manifest.vocabulary,
        )
    async with trio.open_nursery() as nursery:
        addresses = [await nursery.start(_serve_one, store) for _ in manifest.stages]
        async with keep_fleet(options, KEY, FixedPeers(addresses), speculation) as fleet:
            yield fleet
        nursery.cancel_scope.cancel()


async def _serve_one(store: Store, task_status: trio.TaskStatus[Address]) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(Address(*listeners[0].socket.getsockname()[:2]))
    options = PeerOptions(KEY, threads=1, cells=1 << 15)
    await serve(listeners, options, store=PeerStore(store.root), engine_factory=create_engine)
