"""Faults on purpose: peer processes are killed and stopped after a seeded schedule."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, product
from random import Random

import trio

from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.peers import OwnPeers

POLL = 0.002  # seconds between two looks whether a reply is in the phase that a fault wants
JITTER = 0.4  # of the distance between two faults


class Kind(StrEnum):
    """What happens to the process."""

    KILL = "kill"
    STOP = "stop"


class Phase(StrEnum):
    """What some reply does meanwhile."""

    PREFILL = "prefill"
    DECODE = "decode"


SIGNALS = {Kind.KILL: "SIGKILL", Kind.STOP: "SIGSTOP"}


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` seconds after the beginning, or as soon as a reply is in `phase` then."""

    at: float
    stage: int
    kind: Kind
    phase: Phase

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {SIGNALS[self.kind]} of stage {self.stage} in {self.phase}"


def schedule(seed: int, *, stages: int, faults: int, seconds: float) -> tuple[Fault, ...]:
    """Every kind for every stage in every phase, in an order and at moments that the seed says (pure)."""
    random = Random(seed)
    kinds = list(product(range(stages), Kind, Phase))
    random.shuffle(kinds)
    distance = seconds / (faults + 1)
    moments = [distance * (number + 1 + JITTER * (random.random() - 0.5)) for number in range(faults)]
    return tuple(
        Fault(moment, stage, kind, phase)
        for moment, (stage, kind, phase) in zip(moments, cycle(kinds), strict=False)
    )


def check_faults() -> None:
    """Raise InputError where processes cannot be stopped."""
    if sys.platform == "win32":
        raise InputError("--faults: processes cannot be stopped on Windows")


async def inject(faults: Sequence[Fault], fleet: Fleet, peers: OwnPeers, note: Callable[[str], None]) -> None:
    """Carry out a schedule that begins now. A fault waits until the one before it is overcome."""
    began = trio.current_time()
    for number, fault in enumerate(faults):
        await trio.sleep_until(began + fault.at)
        while not _is_due(fault, fleet, number):  # noqa: ASYNC110 (a state of many replies, no event)
            await trio.sleep(POLL)
        note(f"{trio.current_time() - began:6.1f} s  {SIGNALS[fault.kind]} to stage {fault.stage}")
        peers.process(fault.stage).send_signal(getattr(signal, SIGNALS[fault.kind]))
    while len(fleet.recoveries) < len(faults) and fleet.failure is None:  # noqa: ASYNC110
        await trio.sleep(POLL)


def _is_due(fault: Fault, fleet: Fleet, before: int) -> bool:
    if fleet.failure is not None:
        return True
    if len(fleet.recoveries) < before or fleet.chain.failure is not None:
        return False
    replies = [session.generation for session in fleet.sessions if session.generation is not None]
    in_prefill = [one for one in replies if one.prefill_done < one.prefill_total]
    return bool(in_prefill) if fault.phase is Phase.PREFILL else len(in_prefill) < len(replies)
