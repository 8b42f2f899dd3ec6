"""Ports, peers and the chain, with real processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.doctor.chain import check_chain
from fleetchat.doctor.finding import Status
from fleetchat.doctor.peers import Question, check_peer, questions
from fleetchat.doctor.port import check_port
from fleetchat.doctor.tokenizer import load_format
from fleetchat.fleet.options import FleetOptions, PeerSpec, embedded_peers
from fleetchat.ids import Address
from fleetchat.keys import load_or_create_key
from tests.doctor.set_up import SetUp, fake_openvino
from tests.fakes.peers import nobody_listens

pytestmark = [pytest.mark.trio, pytest.mark.slow]
KEY = bytes(32)


def options_of(set_up: SetUp, peers: tuple[PeerSpec, ...] = embedded_peers(2)) -> FleetOptions:
    return FleetOptions(set_up.build, set_up.store.root, peers, precision="fast", kv="masked", context=256)


def question(address: Address) -> Question:
    return Question(0, PeerSpec(address, "left"), address, None)


async def free_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = int(listener.socket.getsockname()[1])
    await listener.aclose()
    return port


async def test_a_free_port_and_one_that_a_peer_has(healthy: SetUp, tmp_path: Path) -> None:
    free = Address("127.0.0.1", await free_port())
    assert (await check_port(free, KEY)).text == f"{free} is free for `fleetchat peer`"
    load_or_create_key(tmp_path / "k")
    with healthy.peer(tmp_path / "k") as text:
        address = Address("127.0.0.1", int(text.rpartition(":")[2]))
        found = await check_port(address, KEY)  # another key than the peer's
    assert (found.status, found.text) == (Status.OK, f"a fleetchat peer listens on {address}")


async def test_nobody_and_a_stranger_where_a_peer_should_be() -> None:
    with nobody_listens() as address:
        nobody = await check_peer(question(address), KEY, "rebuild")
    assert nobody.status is Status.FAIL
    assert "connection refused" in nobody.text
    assert "fleetchat peer" in nobody.remedy
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = Address("127.0.0.1", listener.socket.getsockname()[1])

    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"SSH-2.0-OpenSSH_9.9\r\n" * 8)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greet, [listener])
        stranger = await check_peer(question(address), KEY, "rebuild")
        nursery.cancel_scope.cancel()
    assert stranger.status is Status.FAIL
    assert stranger.text.startswith(f"{address}: ")
    assert stranger.text.endswith(": it is no fleetchat peer, or one that hangs")
    assert f"correct the address {address} in fleet.toml" in stranger.remedy


async def test_a_peer_without_the_shard(healthy: SetUp, empty: SetUp, tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "k")
    with empty.peer(tmp_path / "k") as text:
        address = Address("127.0.0.1", int(text.rpartition(":")[2]))
        peers = (PeerSpec(None), PeerSpec(address, "right"))
        (asked,) = questions(peers, options_of(healthy, peers), key)
        found = await check_peer(asked, key, "rebuild")
    assert (found.name, found.status) == ("peer 1", Status.WARN)
    assert found.text.startswith(f"right at {address}: fleetchat ")
    assert found.text.endswith("; its shard is not there yet")
    assert found.remedy == "nothing: the next chat sends it"
    (measured,) = found.details
    assert measured.startswith(f"measured: right ({address}): ")


async def test_a_chain_over_a_peer_and_an_embedded_stage(healthy: SetUp, tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "k")
    manifest: Manifest = healthy.build
    chat_format = load_format(healthy.store.folder(manifest.build_key), manifest)
    with healthy.peer(tmp_path / "k") as text:
        peers = (PeerSpec(Address("127.0.0.1", int(text.rpartition(":")[2]))), PeerSpec(None))
        found = await check_chain(options_of(healthy, peers), chat_format, key, tmp_path)
    assert found.status is Status.OK, found.text
    assert found.text.startswith("2 stages (1 on this machine), ")
    steps = r"starting the processes \S+ ms, opening .* \S+ ms, the first token \S+ ms, closing \S+ ms"
    assert re.fullmatch(steps, found.details[0])


@pytest.mark.skipif(os.name != "posix", reason="ends a process by a signal")
async def test_a_stage_whose_process_dies(
    healthy: SetUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = healthy.build
    chat_format = load_format(healthy.store.folder(manifest.build_key), manifest)
    monkeypatch.setenv("PYTHONPATH", fake_openvino(tmp_path, "import os\nos.abort()\n")["PYTHONPATH"])
    found = await check_chain(options_of(healthy), chat_format, KEY, tmp_path)
    assert found.status is Status.FAIL
    assert re.fullmatch(r"the process of stage [01] died: SIGABRT \(aborted\)", found.text)
    assert "fleetchat paths --logs" in found.remedy
    assert found.details[0].startswith("starting the processes ")
