"""A peer without its shard gets it: whole, its own only, and hardly more than once."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.received import PeerStore
from fleetchat.errors import PeerLost, PeerRefused
from fleetchat.fleet.push import Patience, Shard, push_shard
from fleetchat.ids import Address
from fleetchat.peer.process import bound_address
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.builds import SIZES, write_build
from tests.fakes.door import open_door
from tests.peer.builders import BUILD
from tests.peer.coordinator import KEY

pytestmark = pytest.mark.trio
HASTY = Patience(attempts=6, pause=0.001, longest_pause=0.01)


@asynccontextmanager
async def empty_peer(root: Path) -> AsyncIterator[Address]:
    """A peer with its own store; it has no engine."""

    def no_engine(request: object) -> object:
        raise AssertionError("nothing is served here")

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: serve(
                listeners,
                PeerOptions(KEY),
                store=PeerStore(root),
                engine_factory=no_engine,  # type: ignore[arg-type]
            )
        )
        yield bound_address(listeners[0])
        nursery.cancel_scope.cancel()


def stored(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "received" / BUILD).iterdir())


async def test_a_peer_gets_its_own_shard_and_nothing_else(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    seen: list[tuple[int, int]] = []
    async with empty_peer(tmp_path / "peer") as address:
        shard = Shard(made, 1, store.folder(BUILD))
        delivery = await push_shard(
            address, KEY, shard, on_progress=lambda one: seen.append((one.here, one.total))
        )
        assert delivery.sent == delivery.here == delivery.total
        assert seen[0] == (0, delivery.total)
        assert stored(tmp_path / "peer") == ["manifest.json", "stage-01.bin", "stage-01.xml"]
        kept = PeerStore(tmp_path / "peer")
        assert kept.find(BUILD, 1) == made
        assert kept.find(BUILD, 0) is None
        kept.verify(made, 1)
        assert (await push_shard(address, KEY, shard)).sent == 0


async def test_ten_cuts_cost_less_than_a_fifth_of_the_shard(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    shard = Shard(made, 0, store.folder(BUILD))
    total = sum(file.size for file in shard.files())
    noise = random.Random(10)
    cuts = sorted(noise.randrange(total) for _ in range(10))
    moved = 0

    async with empty_peer(tmp_path / "peer") as address, open_door(address) as door:

        def count(chunk: bytes) -> bytes:
            """Every link is cut when so many bytes have gone through the door."""
            nonlocal moved
            moved += len(chunk)
            if cuts and moved >= cuts[0]:
                del cuts[0]
                door.cut()
            return chunk

        door.inward = count
        await push_shard(door.address, KEY, shard, patience=HASTY)
    assert cuts == []
    assert moved < 1.2 * total
    PeerStore(tmp_path / "peer").verify(made, 0)
    assert stored(tmp_path / "peer") == ["manifest.json", "stage-00.bin", "stage-00.xml"]


async def test_a_damaged_file_is_sent_again(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    shard = Shard(made, 0, store.folder(BUILD))
    async with empty_peer(tmp_path / "peer") as address:
        await push_shard(address, KEY, shard)
        path = PeerStore(tmp_path / "peer").stage_xml(made, 0)
        path.write_bytes(bytes(SIZES["xml"]))
        assert (await push_shard(address, KEY, shard)).sent == SIZES["xml"]
        PeerStore(tmp_path / "peer").verify(made, 0)


async def test_a_rest_that_was_damaged_begins_anew(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    shard = Shard(made, 0, store.folder(BUILD))
    folder = tmp_path / "peer" / "received" / BUILD
    folder.mkdir(parents=True)
    weights = made.stages[0].bin
    (folder / f".{weights.name}.{weights.sha256[:16]}.part").write_bytes(bytes(3_000_000))
    async with empty_peer(tmp_path / "peer") as address:
        delivery = await push_shard(address, KEY, shard, patience=HASTY)
    assert delivery.sent < delivery.total + weights.size
    PeerStore(tmp_path / "peer").verify(made, 0)


async def test_a_wrong_file_on_this_side_is_not_sent_for_ever(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    (store.folder(BUILD) / "stage-00.xml").write_bytes(bytes(SIZES["xml"]))
    async with empty_peer(tmp_path / "peer") as address:
        with pytest.raises(PeerLost, match=r"stage-00\.xml arrived damaged"):
            await push_shard(address, KEY, Shard(made, 0, store.folder(BUILD)), patience=HASTY)
        assert PeerStore(tmp_path / "peer").find(BUILD, 0) is None


async def test_what_was_built_there_is_not_sent(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    write_build(tmp_path / "peer")
    async with empty_peer(tmp_path / "peer") as address:
        delivery = await push_shard(address, KEY, Shard(made, 1, store.folder(BUILD)))
    assert (delivery.sent, delivery.here) == (0, delivery.total)
    assert not (tmp_path / "peer" / "received").exists()


async def test_a_manifest_of_another_build_is_refused(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")
    store.write_manifest(store.folder(BUILD), replace(made, hidden=1, stages=made.stages[:1]))
    async with empty_peer(tmp_path / "peer") as address:
        with pytest.raises(PeerRefused, match="does not describe the shard that was offered"):
            await push_shard(address, KEY, Shard(made, 1, store.folder(BUILD)))
    assert stored(tmp_path / "peer") == []


async def test_a_full_disk_is_told_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, made = write_build(tmp_path / "chat")
    monkeypatch.setattr("fleetchat.cutter.received.KEPT_FREE", 1 << 60)
    async with empty_peer(tmp_path / "peer") as address:
        with pytest.raises(PeerRefused, match="does not take the shard of stage 0: not enough disk space"):
            await push_shard(address, KEY, Shard(made, 0, store.folder(BUILD)))
