"""Peers on paper: `4x32GB`, `2x16GB,64GB`, and what is assumed of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleetchat.errors import InputError
from fleetchat.fleet.placement import PeerFacts
from fleetchat.fleet.shapes import GROUP_BITS

MOST_PEERS = 64
SYSTEM_BYTES = 4 * 2**30  # that the operating system and other programs take
_PART = re.compile(r"(?:([0-9]{1,3})\s*[xX×]\s*)?([0-9]{1,5}(?:\.[0-9]+)?)\s*(GB|GiB|G|MB|MiB|M)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """`memory_speed` bytes a second read while decoding, `compute` floating point operations a second."""

    memory_speed: float = 50e9
    compute: float = 500e9
    bandwidth: float = 117e6  # bytes a second: 1 Gbit/s
    round_trip: float = 0.0005  # seconds

    def lines(self) -> list[str]:
        """In words."""
        return [
            f"assumed of each peer: {gibibytes(SYSTEM_BYTES)} of its memory taken by the system, "
            f"{self.memory_speed / 1e9:g} GB/s when decoding, {self.compute / 1e9:g} GFLOP/s in a prompt, "
            f"{self.bandwidth * 8 / 1e9:.2g} Gbit/s and {self.round_trip * 1000:g} ms to the chat",
        ]


def paper_peers(text: str, assumptions: Assumptions, bits: int) -> list[PeerFacts]:
    """Raises InputError for what is no list of machines."""
    sizes: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"--peers {text}: {part.strip()!r} is not of the form NxSIZE",
                hint="write 4x32GB, or 2x16GB,64GB",
            )
        unit = 2**30 if match[3].startswith("G") else 2**20
        sizes += [int(float(match[2]) * unit)] * int(match[1] or 1)
    if not 1 <= len(sizes) <= MOST_PEERS:
        raise InputError(f"--peers {text}: a plan takes 1 to {MOST_PEERS} peers, not {len(sizes)}")
    value = (bits + GROUP_BITS[bits]) / 8
    return [
        PeerFacts(
            name=f"pc{number}",
            memory_free=max(0, size - SYSTEM_BYTES),
            decode=value / assumptions.memory_speed,
            prefill=2 / assumptions.compute,
            round_trip=assumptions.round_trip,
            bandwidth=assumptions.bandwidth,
        )
        for number, size in enumerate(sizes, start=1)
    ]


def gibibytes(count: int) -> str:
    return f"{count / 2**30:g} GB"
