"""All peers get their shards at once, and one line says how far that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.push import Delivery
from fleetchat.fleet.shards import Deliveries, provide_shards
from fleetchat.ids import Address
from tests.fakes.builds import write_build
from tests.fleet.test_push import empty_peer, stored
from tests.peer.coordinator import KEY


@pytest.mark.trio
async def test_two_peers_get_what_they_lack(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    told: list[str] = []
    async with empty_peer(tmp_path / "a") as first, empty_peer(tmp_path / "b") as second:
        peers = {0: first, 1: second}
        specs = tuple(PeerSpec(address) for address in peers.values())
        options = FleetOptions(made, store.root, specs, precision="fast", kv="masked", context=64)
        await provide_shards(options, peers, KEY, told.append)
        assert told[0].startswith("sending the shard")
        assert told[-1].startswith("sent 8 MB of shards in ")
        told.clear()
        await provide_shards(options, peers, KEY, told.append)
        assert told == []
    assert stored(tmp_path / "a") == ["manifest.json", "stage-00.bin", "stage-00.xml"]
    assert stored(tmp_path / "b") == ["manifest.json", "stage-01.bin", "stage-01.xml"]


def test_one_line_for_all() -> None:
    told: list[str] = []
    deliveries = Deliveries(told.append)
    one, two = Address("a", 1), Address("b", 2)
    deliveries.update(one, Delivery(total=50_000_000, here=50_000_000))
    deliveries.update(one, Delivery(total=50_000_000, here=10_000_000, sent=1))
    deliveries.update(two, Delivery(total=30_000_000, here=20_000_000, sent=1))
    assert told == [
        "sending the shard to a:1: 10 MB of 50 MB",
        "sending the shards to 2 peers: 30 MB of 80 MB",
    ]
