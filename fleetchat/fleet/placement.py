"""Which peer serves which layers, so that the slowest stage is as fast as can be. Pure.

A stage that computes one token takes its weight values x the time of one value on that peer. A peer may use
80 % of its free memory, for 1.2 times its weights (what compiling takes), the KV cells of all conversations,
and the process itself. Peers stay in their order; one that would slow the chain down may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.errors import InputError
from fleetchat.fleet.shapes import ModelShape, weight_bytes

KEPT_FREE = 0.2  # of a peer's free memory
COMPILED = 1.2  # times the weights: the anonymous memory that compiling takes at most
PROCESS_BYTES = 150 * 10**6  # Python and OpenVINO, before any shard
ACTIVATION_BYTES = 2  # of one value on the wire, f16
OVERHEAD = 0.0005  # seconds a stage and a token: frames, sampling, the event loop


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What is known of a peer: measured, or assumed on paper.

    Times are seconds for one weight value: of one row (`decode`), and of each row of many (`prefill`).
    `round_trip` is in seconds, `bandwidth` in bytes a second, both between the chat and the peer.
    """

    name: str
    memory_free: int  # bytes
    decode: float
    prefill: float
    round_trip: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the fleet is to carry."""

    shape: ModelShape
    bits: int = 4
    context: int = 4096
    conversations: int = 4
    prompt: int = 512  # rows of the prefill that is estimated
    precision: str = "fast"

    @property
    def cells(self) -> int:
        return self.context * self.conversations

    def weights(self, first: int, last: int) -> int:
        """Bytes of the weights of a stage; the embedding is on the first one, the head on the last."""
        values = (last - first + 1) * self.shape.layer_values
        values += self.shape.table_values * ((first == 0) + (last == self.shape.layers - 1))
        if self.shape.tied and first == 0 and last == self.shape.layers - 1:
            values -= self.shape.table_values
        return weight_bytes(values, self.bits)

    def cache(self, layers: int) -> int:
        """Bytes of the KV cells of so many layers."""
        return layers * self.cells * self.shape.cell_bytes(self.precision)

    def memory(self, first: int, last: int) -> int:
        """Bytes that a stage takes."""
        return PROCESS_BYTES + round(COMPILED * self.weights(first, last)) + self.cache(last - first + 1)

    def touched(self, first: int, last: int) -> int:
        """Weight values that one token touches: a lookup in the embedding touches one row."""
        values = (last - first + 1) * self.shape.layer_values
        return values + self.shape.table_values * (last == self.shape.layers - 1)


@dataclass(frozen=True, slots=True)
class PlacedStage:
    """One stage of a plan. Memory in bytes, times in seconds."""

    peer: int  # number of the peer
    first: int
    last: int
    weights: int
    cache: int
    memory: int
    decode: float  # one token, with the leg into the stage
    prefill: float  # the whole prompt


@dataclass(frozen=True, slots=True)
class Plan:
    """`alone`: tokens a second that each peer gives by itself; None = it cannot hold the model."""

    stages: tuple[PlacedStage, ...]
    return_leg: float  # seconds
    alone: tuple[float | None, ...]

    @property
    def slowest(self) -> PlacedStage:
        return max(self.stages, key=lambda stage: stage.decode)

    @property
    def one_conversation(self) -> float:
        """Tokens a second when nobody else asks: every token passes all stages."""
        return 1 / (sum(stage.decode for stage in self.stages) + self.return_leg)

    def together(self, conversations: int) -> float:
        """Tokens a second of all conversations: the slowest stage sets the pace once there are enough."""
        return min(conversations * self.one_conversation, 1 / self.slowest.decode)

    @property
    def best_alone(self) -> int | None:
        """The peer that would be fastest by itself."""
        able = [number for number, rate in enumerate(self.alone) if rate is not None]
        return max(able, key=lambda number: self.alone[number] or 0.0) if able else None


def place(load: Load, peers: Sequence[PeerFacts], *, leave_out: bool = True) -> Plan:
    """The cut with the fastest slowest stage. Raises InputError, in numbers, when the fleet is too small.

    With `leave_out` False every peer serves, also one without which the chain would be faster.
    """
    if not peers:
        raise InputError("a plan needs peers", hint="name them with --peers, as 4x32GB, or add some")
    ranges = _best_ranges(load, peers, leave_out)
    if ranges is None:
        raise _too_small(load, peers)
    stages = tuple(_placed(load, peers[number], number, first, last) for number, (first, last) in ranges)
    last_peer = peers[stages[-1].peer]
    return Plan(
        stages=stages,
        return_leg=last_peer.round_trip / 2,
        alone=tuple(_alone(load, peer) for peer in peers),
    )


def usable(peer: PeerFacts) -> int:
    """Bytes that the peer may use."""
    return int(peer.memory_free * (1 - KEPT_FREE))


def layers_that_fit(load: Load, peer: PeerFacts) -> int:
    """How many layers a peer could hold between others; 0 = none."""
    one = round(COMPILED * weight_bytes(load.shape.layer_values, load.bits)) + load.cache(1)
    return max(0, (usable(peer) - PROCESS_BYTES) // one)


def _placed(load: Load, peer: PeerFacts, number: int, first: int, last: int) -> PlacedStage:
    return PlacedStage(
        peer=number,
        first=first,
        last=last,
        weights=load.weights(first, last),
        cache=load.cache(last - first + 1),
        memory=load.memory(first, last),
        decode=_decode(load, peer, first, last),
        prefill=_prefill(load, peer, first, last),
    )


def _decode(load: Load, peer: PeerFacts, first: int, last: int) -> float:
    leg = peer.round_trip / 2 + load.shape.hidden * ACTIVATION_BYTES / peer.bandwidth
    return load.touched(first, last) * peer.decode + leg + OVERHEAD


def _prefill(load: Load, peer: PeerFacts, first: int, last: int) -> float:
    """The head is computed for one row only."""
    values = (last - first + 1) * load.shape.layer_values
    leg = peer.round_trip / 2 + load.prompt * load.shape.hidden * ACTIVATION_BYTES / peer.bandwidth
    return values * load.prompt * peer.prefill + leg


def _alone(load: Load, peer: PeerFacts) -> float | None:
    """Tokens a second of the whole model on one machine, without a network."""
    last = load.shape.layers - 1
    if load.memory(0, last) > usable(peer):
        return None
    return 1 / (load.touched(0, last) * peer.decode + OVERHEAD)


Ranges = list[tuple[int, tuple[int, int]]]  # (number of the peer, its layers)


def _best_ranges(load: Load, peers: Sequence[PeerFacts], leave_out: bool) -> Ranges | None:
    """Dynamic programming: least slowest stage, then least sum. None = it does not fit."""
    layers = load.shape.layers
    best: list[tuple[float, float, Ranges] | None] = [(0.0, 0.0, []), *[None] * layers]
    for number, peer in enumerate(peers):
        following: list[tuple[float, float, Ranges] | None] = [None] * (layers + 1)
        if leave_out:
            following = list(best)
        for first in range(layers):
            before = best[first]
            if before is None:
                continue
            for last in range(first, layers):
                if load.memory(first, last) > usable(peer):
                    break
                time = _decode(load, peer, first, last)
                slowest, total = max(before[0], time), before[1] + time
                known = following[last + 1]
                if known is None or (slowest, total) < known[:2]:
                    following[last + 1] = slowest, total, [*before[2], (number, (first, last))]
        best = following
    complete = best[layers]
    return None if complete is None else complete[2]


def _too_small(load: Load, peers: Sequence[PeerFacts]) -> InputError:
    layers = load.shape.layers
    needed = round(COMPILED * load.weights(0, layers - 1)) + load.cache(layers)
    room = [max(0, usable(peer) - PROCESS_BYTES) for peer in peers]
    each = ", ".join(
        f"{peer.name} {gigabytes(usable(peer))} ({layers_that_fit(load, peer)} of {layers} layers)"
        for peer in peers
    )
    missing = max(needed - sum(room), 0)
    least = f"; {gigabytes(missing)} are missing" if missing else ""
    return InputError(
        f"the fleet is too small for {load.shape.name}: it needs {gigabytes(needed)} "
        f"({gigabytes(load.weights(0, layers - 1))} of weights at {load.bits} bits x {COMPILED:g}, and "
        f"{gigabytes(load.cache(layers))} for {load.conversations} conversations of {load.context:,} "
        f"tokens), and the peers may use {gigabytes(sum(room))} without their last {KEPT_FREE:.0%}{least}",
        hint=f"what each may use: {each}; add a peer, or lower --context, --conversations or --bits",
    )


def gigabytes(count: int) -> str:
    """Bytes for people, as memory modules are sold: 1 GB = 2^30 bytes."""
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"
