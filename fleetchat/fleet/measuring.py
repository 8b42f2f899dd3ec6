"""Measuring the peers for a plan: memory, the time of a layer, and the link to each of them."""

from __future__ import annotations

import ipaddress
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import trio

from fleetchat.errors import FleetError, PeerLost, PeerRefused, RemoteProtocolError
from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.options import PeerSpec, available_cores
from fleetchat.fleet.placement import PeerFacts, gigabytes
from fleetchat.ids import Address
from fleetchat.paths import log_folder, store_folder
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Chunk, Error, Kept, Measure, Measured
from fleetchat.wire.states import Purpose

LAYER = Measure(hidden=2048, intermediate=5632, rows=256)
"""51 million weights: more than the caches of a PC hold, so that its memory is what is timed."""

ROUND_TRIPS = 9
CHUNK = bytes(32 * 1024)
WINDOW = 32  # chunks under way: enough for 100 Mbyte/s at 10 ms
LONGEST = 1.0  # seconds for which the bandwidth is measured
ANSWER_DEADLINE = 120.0  # seconds; a slow machine may need a while for the layer


@dataclass(frozen=True, slots=True)
class PeerMeasure:
    """`facts` are what a plan needs; the rest is for people."""

    facts: PeerFacts
    address: Address
    measured: Measured


async def measure_all(peers: Sequence[PeerSpec], key: bytes | None, threads: int | None) -> list[PeerMeasure]:
    """Measure one peer after the other: they may share a network.

    A "local" one is started for it. Raises FleetError for the first that does not answer.
    """
    shared = key or bytes(32)
    found = []
    for number, peer in enumerate(peers):
        async with AsyncExitStack() as stack:
            address = peer.address or await _start(stack, number, shared, threads, peer.device)
            found.append(await measure_peer(peer.title, address, shared))
    return found


async def _start(stack: AsyncExitStack, number: int, key: bytes, threads: int | None, device: str) -> Address:
    address, _ = await stack.enter_async_context(
        embedded_peer(
            key=key,
            store_root=store_folder(),
            threads=threads or available_cores(),
            log_file=log_folder() / f"plan-peer-{number}.log",
            device=device,
        )
    )
    return address


async def measure_peer(name: str, address: Address, key: bytes) -> PeerMeasure:
    """Raises PeerUnreachable, AuthenticationFailed, PeerRefused, PeerLost."""
    link = await dial(address, key, purpose=Purpose.MEASURE)
    try:
        round_trip = await _round_trip(link)
        bandwidth = await _bandwidth(link, round_trip)
        await link.send(LAYER)
        measured = await _answer(link)
    finally:
        await link.aclose()
    if not isinstance(measured, Measured):
        raise RemoteProtocolError(f"{link} did not say how long a layer takes")
    if measured.note:
        raise FleetError(f"{name} ({address}) cannot be measured on {measured.device}: {measured.note}")
    facts = PeerFacts(
        name=name,
        memory_free=measured.memory_free,
        decode=measured.one_row_us / 1e6 / LAYER.values,
        prefill=measured.rows_us / 1e6 / LAYER.values / LAYER.rows,
        round_trip=round_trip,
        bandwidth=bandwidth,
    )
    return PeerMeasure(facts, address, measured)


def measurement_lines(measures: Sequence[PeerMeasure]) -> list[str]:
    """What was measured, a line a peer."""
    return [_line(one.facts, one.address, one.measured) for one in measures]


def sharing_lines(measures: Sequence[PeerMeasure]) -> list[str]:
    """Which peers have one machine: each was measured while the others rested."""
    machines: dict[str, list[str]] = {}
    for one in measures:
        machines.setdefault(_machine(one.address.host), []).append(one.facts.name)
    return [
        f"note: {', '.join(names)} share {machine}; the plan takes each as if it had the machine for itself, "
        "together they are slower"
        for machine, names in machines.items()
        if len(names) > 1
    ]


def _machine(host: str) -> str:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return "this machine" if loopback else f"the machine {host}"


def _line(facts: PeerFacts, address: Address, measured: Measured) -> str:
    one, many = measured.one_row_us / 1000, measured.rows_us / 1000
    return (
        f"measured: {facts.name} ({address}): {gigabytes(facts.memory_free)} free, {measured.device}; "
        f"a layer of {LAYER.values / 1e6:.0f} million weights in {one:.1f} ms, with {LAYER.rows} rows in "
        f"{many:.0f} ms; round trip {facts.round_trip * 1000:.2f} ms, {facts.bandwidth / 1e6:.0f} MB/s; "
        f"fleetchat {measured.fleetchat}, OpenVINO {measured.openvino}"
    )


async def _round_trip(link: Link) -> float:
    """Seconds, the median."""
    times = []
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        await link.send(Chunk(0, 0, b"?"))
        await _answer(link)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


async def _bandwidth(link: Link, round_trip: float) -> float:
    """Bytes a second towards the peer."""
    started = time.perf_counter()
    sent = acknowledged = 0
    while time.perf_counter() - started < LONGEST:
        while sent - acknowledged < WINDOW:
            await link.send(Chunk(0, sent * len(CHUNK), CHUNK))
            sent += 1
        await _answer(link)
        acknowledged += 1
    while acknowledged < sent:
        await _answer(link)
        acknowledged += 1
    return sent * len(CHUNK) / max(time.perf_counter() - started - round_trip, 1e-6)


async def _answer(link: Link) -> Kept | Measured:
    frame = None
    with trio.move_on_after(ANSWER_DEADLINE):
        frame = await link.receive()
    match frame:
        case Kept() | Measured():
            return frame
        case Error():
            raise PeerRefused(f"{link}: {frame.text}", hint=frame.hint or None)
        case None:
            raise PeerLost(f"{link} did not answer within {ANSWER_DEADLINE:g} s")
    raise RemoteProtocolError(f"{link} sent {type(frame).__name__} while it was measured")
