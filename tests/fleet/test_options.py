"""What a fleet is opened with: threads, and what is said of a peer that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.fleet.options import FleetOptions, PeerSpec, absence_hint, threads_note, threads_per_stage
from fleetchat.ids import Address
from fleetchat.paths import config_folder
from tests.peer.builders import manifest

PEER = Address("10.0.0.2", 7077)


def options(threads: int | None, *addresses: Address | None) -> FleetOptions:
    peers = tuple(PeerSpec(address) for address in addresses or (None, None))
    return FleetOptions(manifest(len(peers)), Path("store"), peers, "fast", "auto", 2048, threads)


@pytest.mark.parametrize(
    ("threads", "cores", "used", "note"),
    [
        (None, 8, 4, ""),
        (None, 1, 1, ""),
        (2, 2, 2, ""),
        (999, 2, 2, "threads in [fleet] is 999, this machine has 2 cores: 2 are used"),
        (2, 1, 1, "threads in [fleet] is 2, this machine has 1 core: 1 is used"),
    ],
)
def test_no_stage_has_more_threads_than_there_are_cores(
    threads: int | None, cores: int, used: int, note: str
) -> None:
    assert threads_per_stage(options(threads), cores) == used
    assert threads_note(options(threads), cores) == note
    assert threads_note(options(threads, PEER), cores) == "", "a peer has threads of its own"


def test_a_peer_that_is_not_there_is_taken_out_by_a_command_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path))
    assert "`fleetchat fleet remove 10.0.0.2:7077`" in absence_hint(PEER, config_folder() / "fleet.toml")
    other = tmp_path / "other.toml"
    assert f"take it out of {other}: `fleetchat fleet remove 10.0.0.2:7077 --fleet {other}`" in absence_hint(
        PEER, other
    )
    assert absence_hint(PEER, None) == "is `fleetchat peer` running at 10.0.0.2:7077?"
    assert replace(options(None), named_in=other).named_in == other
