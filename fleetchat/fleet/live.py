"""What a fleet that serves measures of its stages, kept in a file: a new cut is proposed from it.

Every batch passes all stages, so the medians of their compute times are of the same work: their ratios are
those of the machines, whatever the chats do. The file is in the state folder, and only the newest chat's.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trio

from fleetchat.config.remembered import write_private
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.placement import Load, PeerFacts
from fleetchat.paths import state_folder

FILE_NAME = "fleet-live.json"
FORMAT = 1
INTERVAL = 5.0  # seconds between two writings
FRESH = 20.0  # seconds: an older file is of a chat that has ended
LEAST_BATCHES = 24  # of a minute, below which a median says little
UNKNOWN_BANDWIDTH = 1e9  # bytes a second: what goes over a leg is a few KB, its round trip is what counts
UNKNOWN_MEMORY = 2**50

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveStage:
    """One stage. `address` is "local" for a process of the chat; memory in bytes, times in milliseconds.

    `memory` is what the peer could use if it served nothing: what is free there, and what it holds itself.
    """

    address: str
    name: str
    first: int
    last: int
    compute_ms: float  # the median of a batch
    network_ms: float  # the leg into the stage, one way; the median
    memory: int


@dataclass(frozen=True, slots=True)
class LiveReport:
    """`written` and `measured` are seconds since 1970; `batches` of the minute before `measured`."""

    model: str
    build_key: str
    written: float
    measured: float
    batches: int
    stages: tuple[LiveStage, ...]

    def is_fresh(self, now: float) -> bool:
        """Whether the chat that wrote it still runs."""
        return 0 <= now - self.written <= FRESH

    def serves(self, peers: Sequence[str]) -> bool:
        """Whether it is of these addresses, in this order."""
        return [stage.address for stage in self.stages] == list(peers)


def live_report(fleet: Fleet, now: float, wall: float) -> LiveReport | None:
    """What is known now; `now` by the trio clock, `wall` in seconds since 1970. None: too little was done."""
    chain: Chain = fleet.chain
    stages, counts = [], []
    for stage, peer in zip(chain.stages, fleet.options.peers, strict=True):
        compute = stage.record.compute_ms.percentiles(now)
        free = stage.ready.memory_free if stage.ready else 0
        held = stage.stats.memory_resident if stage.stats else 0
        counts.append(compute.count)
        stages.append(
            LiveStage(
                address="local" if peer.address is None else str(stage.address),
                name=peer.title,
                first=stage.first_layer,
                last=stage.last_layer,
                compute_ms=compute.p50,
                network_ms=stage.record.network_ms.percentiles(now).p50,
                memory=free + held if free else UNKNOWN_MEMORY,
            )
        )
    batches = min(counts, default=0)
    if batches < LEAST_BATCHES or not all(stage.compute_ms > 0 for stage in stages):
        return None
    manifest = fleet.options.manifest
    return LiveReport(manifest.recipe, manifest.build_key, wall, wall, batches, tuple(stages))


def live_facts(load: Load, report: LiveReport) -> list[PeerFacts]:
    """The peers as a plan wants them; a "token" is a batch of the chats that were measured.

    The time of a prompt is not known, and is taken as that of a row each.
    """
    facts = []
    for stage in report.stages:
        decode = stage.compute_ms / 1000 / load.touched(stage.first, stage.last)
        facts.append(
            PeerFacts(
                name=stage.name,
                memory_free=stage.memory,
                decode=decode,
                prefill=decode,
                round_trip=2 * stage.network_ms / 1000,
                bandwidth=UNKNOWN_BANDWIDTH,
            )
        )
    return facts


def read_live(path: Path | None = None) -> LiveReport | None:
    """The file's report; None when there is none, or none that can be read."""
    try:
        document = json.loads((path or state_folder() / FILE_NAME).read_bytes())
        return _report(document)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _report(document: Mapping[str, Any]) -> LiveReport:
    if document["format"] != FORMAT:
        raise ValueError("another format")
    stages = tuple(
        LiveStage(
            address=str(one["address"]),
            name=str(one["name"]),
            first=int(one["first"]),
            last=int(one["last"]),
            compute_ms=float(one["compute_ms"]),
            network_ms=float(one["network_ms"]),
            memory=int(one["memory"]),
        )
        for one in document["stages"]
    )
    return LiveReport(
        model=str(document["model"]),
        build_key=str(document["build_key"]),
        written=float(document["written"]),
        measured=float(document["measured"]),
        batches=int(document["batches"]),
        stages=stages,
    )


def write_live(report: LiveReport, path: Path | None = None) -> None:
    """Raises OSError."""
    document = {"format": FORMAT, **asdict(report)}
    write_private(path or state_folder() / FILE_NAME, json.dumps(document).encode())


class LiveKeeper:
    """Keeps the newest report of a fleet, in memory and in the file."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: LiveReport | None = None

    def report(self) -> LiveReport | None:
        """Of the chain that serves now; what was measured when it had more to do counts until then."""
        wall = time.time()
        newer = live_report(self._fleet, trio.current_time(), wall)
        known = newer or self._known
        if known is None or known.build_key != self._fleet.options.manifest.build_key:
            self._known = None
            return None
        self._known = LiveReport(
            known.model, known.build_key, wall, known.measured, known.batches, known.stages
        )
        return self._known

    async def run(self) -> None:
        """Write every few seconds until cancelled; a disk that is full costs nothing but the file."""
        while True:
            await trio.sleep(INTERVAL)
            report = self.report()
            if report is not None:
                try:
                    await trio.to_thread.run_sync(write_live, report)
                except OSError as error:
                    log.warning("the live measurements cannot be kept: %s", error)
