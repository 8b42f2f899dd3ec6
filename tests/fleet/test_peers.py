"""What embedded peers are told when they are started."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.errors import FleetError, PeerRefused
from fleetchat.fleet import embedded
from fleetchat.fleet.options import FleetOptions, PeerSpec, embedded_peers
from fleetchat.fleet.peers import started_peers
from fleetchat.ids import Address
from tests.peer.builders import manifest

ELSEWHERE = Address("192.0.2.1", 7150)


@pytest.mark.trio
async def test_embedded_stages_are_told_how_many_divide_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    @asynccontextmanager
    async def pretend(**asked: object) -> AsyncIterator[tuple[Address, None]]:
        told.append(asked["stages_here"])
        yield Address("127.0.0.1", 1), None

    monkeypatch.setattr("fleetchat.fleet.peers.embedded_peer", pretend)
    options = FleetOptions(manifest(3), Path("unused"), embedded_peers(3), "fast", "masked", 64)
    async with started_peers(options, b"", lambda line: None) as peers:
        assert len(peers.addresses) == 3
    mixed = replace(options, peers=(PeerSpec(ELSEWHERE), *embedded_peers(2)))
    async with started_peers(mixed, b"", lambda line: None) as peers:
        assert peers.addresses[0] == ELSEWHERE
    assert told == [3, 3, 3, 2, 2]


@pytest.mark.trio
@pytest.mark.parametrize(("code", "kind"), [(1, FleetError), (2, PeerRefused)])
async def test_why_an_embedded_peer_did_not_start_keeps_its_exit_code(
    code: int, kind: type[FleetError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.dumps({"error": "no such device", "hint": "take the CPU", "exit": code})
    monkeypatch.setattr(embedded, "child_command", lambda *_: [sys.executable, "-c", f"print({said!r})"])
    with pytest.raises(FleetError) as refused:
        async with embedded.embedded_peer(
            key=bytes(32), store_root=tmp_path, threads=1, log_file=tmp_path / "peer.log"
        ):
            raise AssertionError("it started")
    assert type(refused.value) is kind
    assert (refused.value.exit_code, refused.value.hint) == (code, "take the CPU")
    assert refused.value.message == "an embedded shard peer did not start: no such device"
