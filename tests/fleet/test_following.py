"""A fleet that serves does what its file says now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from fleetchat.config import Config, load
from fleetchat.config.load import files_in_question
from fleetchat.config.user_file import add_to_file, remove_from_file
from fleetchat.fleet import epochs
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.following import ConfigSource, Follower
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.provision import BuildProgress
from fleetchat.ids import Address
from tests.fakes.standing_peers import Standing, nothing_to_bring, standing_fleet
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "provide_shards", nothing_to_bring)
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path.parent)


@dataclass
class Followed:
    """A fleet over `a` and `b`, the file that it follows, and what was prepared for it."""

    fleet: Fleet
    standing: Standing
    file: Path
    prepared: list[str] = field(default_factory=list)
    hold: trio.Event | None = None  # building waits for it

    def add(self, name: str, *, spare: bool = False) -> None:
        add_to_file(self.file, str(self.standing.addresses[name]), name=name, spare=spare)

    def remove(self, name: str) -> None:
        remove_from_file(self.file, name)

    async def prepare(self, config: Config, note: Callable[[BuildProgress], None]) -> FleetOptions:
        names = "".join(peer.name for peer in config.fleet.peers if not peer.spare)
        spares = "".join(peer.name for peer in config.fleet.peers if peer.spare)
        note(BuildProgress("cutting", 1, 4))
        self.prepared.append(names)
        if self.hold is not None:
            await self.hold.wait()
        return self.standing.options(names, spares)

    async def wait_serving(self, names: str) -> None:
        wanted = [str(self.standing.addresses[name]) for name in names]
        await wait_for(lambda: [str(stage.address) for stage in self.fleet.chain.stages] == wanted)


@asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    async with standing_fleet("ab", "c") as (fleet, standing), trio.open_nursery() as nursery:
        one = Followed(fleet, standing, tmp_path / "fleet.toml")
        one.add("a")
        one.add("b")
        source = ConfigSource(load, files_in_question)
        seen = source.signature()
        follower = Follower(fleet, source, load(), seen, interval=0.01, prepare=one.prepare)
        nursery.start_soon(follower.run)
        yield one
        nursery.cancel_scope.cancel()


async def test_peers_come_and_go(tmp_path: Path) -> None:
    async with followed(tmp_path) as one:
        one.add("c")
        await one.wait_serving("abc")
        one.remove("b")
        await one.wait_serving("ac")
        await wait_for(lambda: one.fleet.moving == "")
    assert one.prepared == ["abc", "ac"]
    assert one.fleet.moves == 2


async def test_a_change_takes_the_place_of_one_that_is_prepared(tmp_path: Path) -> None:
    async with followed(tmp_path) as one:
        one.hold = trio.Event()
        one.add("c")
        await wait_for(lambda: one.prepared == ["abc"])
        assert one.fleet.moving == "building the shards of another cut: cutting 25 %"
        one.remove("a")
        await wait_for(lambda: one.prepared == ["abc", "bc"])
        one.hold.set()
        await one.wait_serving("bc")
    assert one.fleet.moves == 1


async def test_a_spare_alone_moves_nothing(tmp_path: Path) -> None:
    async with followed(tmp_path) as one:
        one.add("c", spare=True)
        await wait_for(lambda: one.prepared == ["ab"])
        one.remove("c")
        await wait_for(lambda: one.prepared == ["ab", "ab"])
        assert one.fleet.moves == 0
        assert one.fleet.snapshot().epoch == 1


async def test_what_cannot_be_had_is_told_and_tried_again(tmp_path: Path) -> None:
    async with followed(tmp_path) as one:
        right = one.standing.addresses["c"]
        one.standing.addresses["c"] = Address("127.0.0.1", 1)
        one.add("c")
        await wait_for(lambda: any(event.kind is EventKind.STAYED for event in one.fleet.events.listed()))
        told = [event.text for event in one.fleet.events.listed() if event.kind is EventKind.STAYED]
        assert told[0].startswith(
            "2 stages (layers 0-0, 1-1) serve on: stage 2: no peer answers at 127.0.0.1:1"
        )
        one.standing.addresses["c"] = right
        one.file.write_text(one.file.read_text() + "# look again\n")
        await one.wait_serving("abc")


async def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with followed(tmp_path) as one:
        text = one.file.read_text()
        one.file.write_text(text + "[fleet]\nmode = 7\n")
        await wait_for(lambda: any(event.kind is EventKind.STAYED for event in one.fleet.events.listed()))
        one.file.write_text(text)
        one.add("c")
        await one.wait_serving("abc")
