"""What the fleet shows of itself: immutable snapshots and the figures of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fleetchat.fleet.event_log import FleetEvent
from fleetchat.fleet.timeline import TimelineSnapshot

History = tuple[float | None, ...]
"""Medians of the last minute in equal steps, the oldest first; None where nothing was measured."""


class StageState(StrEnum):
    """Where a stage is in its life."""

    CONNECTING = "connecting"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    STALLED = "stalled"
    LOST = "lost"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds, over the last minute. `count` = 0 means that nothing was measured."""

    p50: float = 0.0
    p95: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    index: int
    address: str
    first_layer: int
    last_layer: int
    state: StageState
    detail: str  # progress or fault in words
    engine: str
    device: str
    compute_ms: Percentiles
    queue_ms: Percentiles
    network_ms: Percentiles  # the link into this stage, one way
    cells_granted: int
    cells_live: int
    cells_dead: int
    memory_resident: int  # bytes, 0 = unknown
    compute_history: History = ()
    queue_history: History = ()
    network_history: History = ()
    heat: float | None = None  # times slower than its own best over the last 40 s; None = too little work
    throttling: bool = False
    settings: str = ""  # of OpenVINO, and why, in words

    @property
    def cells_free(self) -> int:
        return max(0, self.cells_granted - self.cells_live - self.cells_dead)


@dataclass(frozen=True, slots=True)
class SpeculationSnapshot:
    """Counters since the session, or the fleet, was opened. `recent` is acceptance over the last rounds."""

    drafter: str
    rounds: int
    drafted: int
    accepted: int
    rollbacks: int
    cells_masked: int  # by rollbacks, on each stage
    compactions: int
    depth: int  # drafts of the last round
    reason: str  # why so many
    recent: tuple[float, ...]
    by_depth: tuple[int, ...] = ()  # rounds with 0, 1, … drafts
    by_accepted: tuple[int, ...] = ()  # rounds with drafts, of which 0, 1, … were accepted

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    session: int
    tokens: int  # committed
    prefill_done: int
    prefill_total: int  # 0 = not in prefill
    generating: bool
    tokens_per_s: float  # of this reply, over the same last 2 s for all sessions: they add up
    speculation: SpeculationSnapshot | None = None
    cells_live: int = 0  # on each stage
    cells_dead: int = 0


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    model: str
    precision: str
    kv: str
    epoch: int
    stages: tuple[StageSnapshot, ...]
    return_network_ms: Percentiles
    sessions: tuple[SessionSnapshot, ...]
    tokens_per_s: float
    kv_reason: str = ""  # why this KV engine
    speculation: SpeculationSnapshot | None = None  # of all sessions together
    waiting: int = 0  # replies that wait for room
    evictions: int = 0  # idle sessions that lost their cells to others
    forks: int = 0  # sessions that began with cells of another one
    recoveries: int = 0  # stages that were lost and replaced
    moves: int = 0  # to other peers, or another cut
    moving: str = ""  # what is being done for the next one, in words
    trouble: str = ""  # which stage failed, why, and what happens now, in words
    timeline: TimelineSnapshot | None = None  # seconds of the coordinator's clock
    taken: float = 0.0  # seconds of the coordinator's clock
    wall_shift: float = 0.0  # what makes local time of day of it, in seconds since 1970 as if in UTC
    return_history: History = ()
    events: tuple[FleetEvent, ...] = ()


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counters of one answer. Cell counters have an entry a stage."""

    drafter: str = "none"
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    depth_histogram: tuple[int, ...] = ()
    rollbacks: int = 0
    cells_masked: tuple[int, ...] = ()
    cells_live: tuple[int, ...] = ()
    cells_dead: tuple[int, ...] = ()
    compactions: int = 0

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply. `token_ids` excludes the stop id. `error` is (message, hint) when finish_reason is ERROR."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    prompt_tokens: int
    prompt_tokens_cached: int
    ttft_ms: float
    tokens_per_s: float
    speculation: Speculation = field(default_factory=Speculation)
    recoveries: tuple[dict[str, object], ...] = ()
    error: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()  # what the reader should know, a sentence each

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)
