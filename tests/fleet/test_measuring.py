"""A peer is measured over its own link."""

from __future__ import annotations

import pytest

from fleetchat.errors import AuthenticationFailed, FleetError, PeerRefused
from fleetchat.fleet import measuring
from fleetchat.fleet.measuring import LAYER, measure_peer, measurement_lines
from fleetchat.peer.serve import PeerOptions
from tests.peer.coordinator import KEY, fake_peer

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LONGEST", 0.02)


def timed(hidden: int, intermediate: int, rows: int) -> tuple[float, float]:
    assert (hidden, intermediate, rows) == (LAYER.hidden, LAYER.intermediate, LAYER.rows)
    return 0.005, 0.1


async def test_what_a_plan_needs_to_know() -> None:
    async with fake_peer(options=PeerOptions(KEY, time_layer=timed)) as peer:
        measure = await measure_peer("desk", peer.address, KEY)
    facts = measure.facts
    assert facts.decode == pytest.approx(0.005 / LAYER.values)
    assert facts.prefill == pytest.approx(0.1 / LAYER.values / LAYER.rows)
    assert facts.memory_free > 0
    assert 0 < facts.round_trip < 30
    assert facts.bandwidth > 0
    (line,) = measurement_lines([measure])
    assert line.startswith(f"measured: desk ({peer.address}): ")
    assert "a layer of 51 million weights in 5.0 ms, with 256 rows in 100 ms" in line


async def test_a_device_that_fails_is_told() -> None:
    def broken(hidden: int, intermediate: int, rows: int) -> tuple[float, float]:
        raise RuntimeError("no kernel")

    async with fake_peer(options=PeerOptions(KEY, device="NPU", time_layer=broken)) as peer:
        with pytest.raises(FleetError, match="cannot be measured on NPU: RuntimeError: no kernel"):
            await measure_peer("desk", peer.address, KEY)


async def test_a_peer_that_cannot_be_measured_and_a_wrong_key() -> None:
    async with fake_peer() as peer:
        with pytest.raises(PeerRefused, match="this peer cannot be measured"):
            await measure_peer("desk", peer.address, KEY)
        with pytest.raises(AuthenticationFailed):
            await measure_peer("desk", peer.address, bytes(32))
