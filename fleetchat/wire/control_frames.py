"""Frames of control links, and those that attach a data link."""

from __future__ import annotations

from dataclasses import dataclass

from fleetchat.ids import Address, BuildKey, ChainId, Epoch, SessionId, StageIndex
from fleetchat.wire.checks import (
    MAX_BODY,
    MAX_FAULT_TEXT,
    MAX_HIDDEN,
    MAX_NAME,
    MAX_ROWS,
    MAX_SESSIONS_IN_STATS,
    MAX_SLICES,
    MAX_STAGES,
    MAX_TEXT,
    U16,
    U64,
    clean_field,
    require,
    require_hexadecimal,
    require_host,
    require_whole,
)
from fleetchat.wire.kinds import AttachRole, FaultCode, WireDtype


@dataclass(frozen=True, slots=True)
class Open:
    """Coordinator -> stage: serve this stage for this chain."""

    chain: ChainId
    epoch: Epoch
    build_key: BuildKey
    stage: StageIndex
    stages: int
    first_layer: int
    last_layer: int
    vocabulary: int
    hidden: int
    wire_dtype: WireDtype
    precision: str  # "exact" | "fast"
    engine: str  # "masked" | "paged"
    next_address: Address | None  # None on the last stage
    cells_wanted: int
    max_rows: int  # most rows in one batch
    max_slices: int  # most slices in one batch

    def __post_init__(self) -> None:
        require_hexadecimal("chain", self.chain, 32)
        require_whole("epoch", self.epoch, 1)
        require_hexadecimal("build_key", self.build_key, 64)
        require_whole("stages", self.stages, 1, MAX_STAGES)
        require_whole("stage", self.stage, 0, self.stages - 1)
        require_whole("last_layer", self.last_layer, 0, U16)
        require_whole("first_layer", self.first_layer, 0, self.last_layer)
        require_whole("vocabulary", self.vocabulary, 1, 2**31 - 1)
        require_whole("hidden", self.hidden, 1, MAX_HIDDEN)
        require(isinstance(self.wire_dtype, WireDtype), "wire_dtype must be a WireDtype")
        require(self.precision in ("exact", "fast"), "precision must be exact or fast")
        require(self.engine in ("masked", "paged"), "engine must be masked or paged")
        is_last = self.stage == self.stages - 1
        require(is_last == (self.next_address is None), "every stage but the last has a next address")
        if self.next_address is not None:
            require_host(self.next_address.host)
            require_whole("port", self.next_address.port, 1, U16)
        require_whole("cells_wanted", self.cells_wanted, 1)
        require_whole("max_rows", self.max_rows, 1, MAX_ROWS)
        require_whole("max_slices", self.max_slices, 1, MAX_SLICES)
        hidden_bytes = self.max_rows * self.hidden * self.wire_dtype.numpy.itemsize
        require(hidden_bytes <= MAX_BODY // 2, f"max_rows x hidden must stay below {MAX_BODY // 2} bytes")


@dataclass(frozen=True, slots=True)
class Progress:
    """Stage -> coordinator, at most 4 a second while it loads."""

    what: str
    done: int
    total: int

    def __post_init__(self) -> None:
        clean_field(self, "what", MAX_FAULT_TEXT)
        require_whole("total", self.total, 0, U64)
        require_whole("done", self.done, 0, self.total)


@dataclass(frozen=True, slots=True)
class Ready:
    """Stage -> coordinator: loaded, warmed up, attached to the next stage."""

    fleetchat: str
    openvino: str
    device: str
    memory_free: int  # bytes
    cells: int  # granted
    window: int  # W: batches this chain's queue on this stage holds
    engine: str
    sessions_per_batch: int
    can_fork: bool
    block_size: int
    self_check: str  # "passed", or what was refused and why
    settings: str  # of OpenVINO, and why, in words

    def __post_init__(self) -> None:
        for name in ("fleetchat", "openvino", "device"):
            clean_field(self, name, MAX_NAME)
        for name in ("self_check", "settings"):
            clean_field(self, name, MAX_FAULT_TEXT)
        require_whole("memory_free", self.memory_free, 0, U64)
        require_whole("cells", self.cells)
        require_whole("window", self.window, 1, U16)
        require(self.engine in ("masked", "paged"), "engine must be masked or paged")
        require_whole("sessions_per_batch", self.sessions_per_batch, 1, U16)
        require(isinstance(self.can_fork, bool), "can_fork must be true or false")
        require_whole("block_size", self.block_size, 1, U16)


@dataclass(frozen=True, slots=True)
class Ping:
    token: int  # u64, echoed

    def __post_init__(self) -> None:
        require_whole("token", self.token, 0, U64)


@dataclass(frozen=True, slots=True)
class Pong:
    token: int

    def __post_init__(self) -> None:
        require_whole("token", self.token, 0, U64)


@dataclass(frozen=True, slots=True)
class StatsRequest:
    pass


@dataclass(frozen=True, slots=True)
class SessionStats:
    session: SessionId
    length: int  # logical
    live: int
    dead: int

    def __post_init__(self) -> None:
        for name in ("session", "length", "live", "dead"):
            require_whole(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Stats:
    """Stage -> coordinator: the chain's sessions on this stage and the stage's health."""

    sessions: tuple[SessionStats, ...]  # at most MAX_SESSIONS_IN_STATS
    cells_granted: int
    cells_used: int  # physical, this chain
    queue_length: int
    batches: int  # served since OPEN
    memory_resident: int  # bytes of the peer process
    next_round_trip_us: int  # median of the data link to the next stage; 0 = none yet
    dropped_frames: int  # old epoch or unknown sequence

    def __post_init__(self) -> None:
        require(isinstance(self.sessions, tuple), "sessions must be a tuple")
        require(
            len(self.sessions) <= MAX_SESSIONS_IN_STATS, f"at most {MAX_SESSIONS_IN_STATS} sessions in STATS"
        )
        for name in (
            "cells_granted",
            "cells_used",
            "queue_length",
            "batches",
            "memory_resident",
            "next_round_trip_us",
            "dropped_frames",
        ):
            require_whole(name, getattr(self, name), 0, U64)


@dataclass(frozen=True, slots=True)
class Error:
    """A fault of a link, a stage or a chain (a slice's fault travels in RESULT)."""

    code: FaultCode
    text: str
    hint: str = ""

    def __post_init__(self) -> None:
        require(isinstance(self.code, FaultCode), "code must be a FaultCode")
        clean_field(self, "text", MAX_TEXT)
        clean_field(self, "hint", MAX_TEXT)


@dataclass(frozen=True, slots=True)
class Goodbye:
    reason: str

    def __post_init__(self) -> None:
        clean_field(self, "reason", MAX_TEXT)


@dataclass(frozen=True, slots=True)
class Attach:
    """First frame of a data link: make this connection a data link of that chain's stage."""

    chain: ChainId
    epoch: Epoch
    stage: StageIndex
    role: AttachRole

    def __post_init__(self) -> None:
        require_hexadecimal("chain", self.chain, 32)
        require_whole("epoch", self.epoch, 1)
        require_whole("stage", self.stage, 0, MAX_STAGES - 1)
        require(isinstance(self.role, AttachRole), "role must be an AttachRole")


@dataclass(frozen=True, slots=True)
class Attached:
    pass


@dataclass(frozen=True, slots=True)
class NotYet:
    """The chain is not open here yet; dial again within the connect deadline."""
