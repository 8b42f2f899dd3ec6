"""What embedded peers are told when they are started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

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
