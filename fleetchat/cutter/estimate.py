"""What a build takes: disk, memory, time; from the size of what it starts from. Pure but for file sizes.

Rough on purpose, and rather too much than too little: the factors are estimates, not measurements. The export
is taken to hold the checkpoint about twice, to write it as fp16 first, and then as what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetchat.cutter.store import megabytes
from fleetchat.errors import SourceError

EXPORTED = {"int4": 0.34, "int8": 0.54, "fp16": 1.02}  # bytes of an IR for each byte of a 16-bit checkpoint
CUT = 2.2  # whole model and shards for each byte of a whole model: the stages share an embedding
PROGRAMS = 2_000_000_000  # bytes: Python, torch and optimum-intel before any weight
SPEED = {"gguf": 12e6, "ir": 40e6, "checkpoint": 8e6}  # bytes a second on two slow cores
FETCHING = 10e6  # bytes a second, for want of a better guess


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes and seconds. `disk` includes what is fetched."""

    fetched: int
    disk: int
    memory: int
    seconds: float

    @property
    def line(self) -> str:
        """In words."""
        fetched = f"{megabytes(self.fetched)} to fetch, " if self.fetched else ""
        minutes = max(1, round(self.seconds / 60))
        return (
            f"{fetched}{megabytes(self.disk)} of disk, {megabytes(self.memory)} of memory, "
            f"about {minutes} minute{'s' if minutes > 1 else ''}"
        )


def needs(kind: str, size: int, weights: str, *, fetched: int) -> Needs:
    """`kind` gguf, ir or checkpoint; `size` bytes of the model in it; `fetched` bytes over the network."""
    if kind == "checkpoint":
        exported = round(size * EXPORTED[weights])
        disk = fetched + round(size * EXPORTED["fp16"]) + round(exported * (1 + CUT))
        memory = PROGRAMS + round(2.2 * size)
    else:
        disk = fetched + round(size * (1.3 + CUT if kind == "gguf" else CUT))
        memory = PROGRAMS // 2 + round(2.2 * size)
    return Needs(fetched, disk, memory, 20 + size / SPEED[kind] + fetched / FETCHING)


def check_room(needed: Needs, *, disk: int, memory: int, place: str) -> None:
    """Raise SourceError, in numbers, when disk or memory are too small; memory 0 = not known."""
    if disk < needed.disk:
        raise SourceError(
            f"the build takes {megabytes(needed.disk)} of disk, and {place} has {megabytes(disk)} free",
            hint="free some space (`fleetchat shards rm --unused`), or choose --store DIR on another disk",
        )
    if 0 < memory < needed.memory:
        raise SourceError(
            f"the build takes {megabytes(needed.memory)} of memory, and {megabytes(memory)} are free",
            hint="close other programs, build on a larger machine, or take an OpenVINO export of the model",
        )
