"""The frames of the protocol, as values. How they become bytes is `codec.py`'s work.

Two rules: a frame that can be built is a legal frame (the constructors check), and no frame carries
an attention mask or logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from fleetchat.ids import Address, BatchSequence, BuildKey, ChainId, Epoch, SessionId, StageIndex


class Kind(IntEnum):
    """Frame kinds; the number is what travels."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSED = 5
    OPEN = 16
    PROGRESS = 17
    READY = 18
    PING = 19
    PONG = 20
    STATS_REQUEST = 21
    STATS = 22
    ERROR = 23
    GOODBYE = 24
    ATTACH = 32
    ATTACHED = 33
    NOT_YET = 34
    FORWARD = 48
    RESULT = 49
    CANCEL = 50
    CLOSE = 51
    COMPACT = 52
    FORK = 53


class WireDtype(StrEnum):
    """How hidden rows travel."""

    F16 = "f16"
    F32 = "f32"

    @property
    def numpy(self) -> np.dtype[np.floating]:
        return np.dtype("<f2") if self is WireDtype.F16 else np.dtype("<f4")


class AttachRole(StrEnum):
    """Which data link a connection becomes."""

    UPSTREAM = "upstream"  # FORWARD comes in here
    RETURN = "return"  # RESULT goes out here


class SliceStatus(IntEnum):
    """State of a slice on its way through the chain."""

    OK = 0
    SKIPPED = 1
    FAILED = 2


class ResultStatus(IntEnum):
    """What became of a slice."""

    DRAWN = 0
    NO_DRAW = 1
    SKIPPED = 2
    FAILED = 3


class FaultCode(StrEnum):
    """Why a slice, a link, a stage or a chain failed."""

    # of a slice
    DESYNC = "desync"  # rollback differs from the stage's length - first
    GAP = "gap"  # first > length
    OVERFLOW = "overflow"  # no cells left
    NON_FINITE = "non-finite"  # logits with NaN or infinity
    EXCEPTION = "exception"  # the engine raised
    UNSUPPORTED = "unsupported"
    # of a link, a stage or a chain
    BUILD_KEY = "build-key"
    NO_SHARD = "no-shard"
    SHARD_DAMAGED = "shard-damaged"
    MISMATCH = "mismatch"
    CELLS = "cells"
    ENGINE = "engine"
    LINK = "link"
    PROTOCOL = "protocol"
    INTERNAL = "internal"


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


@dataclass(frozen=True, slots=True)
class Progress:
    """Stage -> coordinator, at most 4 a second while it loads."""

    what: str
    done: int
    total: int


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


@dataclass(frozen=True, slots=True)
class Ping:
    token: int  # u64, echoed


@dataclass(frozen=True, slots=True)
class Pong:
    token: int


@dataclass(frozen=True, slots=True)
class StatsRequest:
    pass


@dataclass(frozen=True, slots=True)
class SessionStats:
    session: SessionId
    length: int  # logical
    live: int
    dead: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Stage -> coordinator: the chain's sessions on this stage and the stage's health."""

    sessions: tuple[SessionStats, ...]
    cells_granted: int
    cells_used: int  # physical, this chain
    queue_length: int
    batches: int  # served since OPEN
    memory_resident: int  # bytes of the peer process
    next_round_trip_us: int  # median of the data link to the next stage; 0 = none yet
    dropped_frames: int  # old epoch or unknown sequence


@dataclass(frozen=True, slots=True)
class Error:
    """A fault of a link, a stage or a chain (a slice's fault travels in RESULT)."""

    code: FaultCode
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Goodbye:
    reason: str


@dataclass(frozen=True, slots=True)
class Attach:
    """First frame of a data link: make this connection a data link of that chain's stage."""

    chain: ChainId
    epoch: Epoch
    stage: StageIndex
    role: AttachRole


@dataclass(frozen=True, slots=True)
class Attached:
    pass


@dataclass(frozen=True, slots=True)
class NotYet:
    """The chain is not open here yet; dial again within the connect deadline."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How the last stage draws a token. See `engine.sampling`."""

    temperature: float  # 0 = arg max
    top_p: float  # 1 = off
    top_k: int  # 0 = off
    penalty: float  # repetition penalty, 1 = off
    seed: int  # u64
    reply_start: int  # logical position of the reply's first token


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Consecutive rows of one session, on their way through the chain.

    `token_ids` is int32 [rows], rows >= 1; the last `drafts` of them are drafts (drafts < rows).
    `rollback` must equal the stage's length - `first`. A slice without `draw` fills the cache only.
    """

    session: SessionId
    first: int
    rollback: int
    token_ids: NDArray[np.int32]
    drafts: int = 0
    draw: Draw | None = None
    status: SliceStatus = SliceStatus.OK
    fault_code: str = ""
    fault_text: str = ""

    @property
    def rows(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class StageTiming:
    """What one stage says of one batch. `cells` has (live, dead) for each slice, in order."""

    queue_us: int
    compute_us: int
    received_bytes: int
    cells: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """A batch on one leg.

    `hidden` is [sum of rows of the slices with status OK, width] in the wire dtype, in slice order;
    None on the leg into stage 0. `timings` has one entry a stage passed so far.
    """

    epoch: Epoch
    sequence: BatchSequence
    slices: tuple[Slice, ...]
    hidden: NDArray[np.floating] | None = None
    timings: tuple[StageTiming, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceResult:
    """`token` is the one drawn after `accepted` accepted drafts; both 0 unless DRAWN."""

    session: SessionId
    status: ResultStatus
    accepted: int = 0
    token: int = 0
    fault_code: str = ""
    fault_text: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Exactly one per FORWARD, last stage -> coordinator."""

    epoch: Epoch
    sequence: BatchSequence
    results: tuple[SliceResult, ...]
    timings: tuple[StageTiming, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """In-band. Skip queued slices of the session, then truncate it to `keep`."""

    epoch: Epoch
    session: SessionId
    keep: int


@dataclass(frozen=True, slots=True)
class Close:
    """In-band. Free the session's cells."""

    epoch: Epoch
    session: SessionId


@dataclass(frozen=True, slots=True)
class Compact:
    """In-band, no answer."""

    epoch: Epoch
    session: SessionId


@dataclass(frozen=True, slots=True)
class Fork:
    """In-band. `new` shares the first `length` cells of `source`."""

    epoch: Epoch
    new: SessionId
    source: SessionId
    length: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection accepts; known before OPEN as `INITIAL_LIMITS`, after it from OPEN."""

    max_body: int  # bytes
    max_rows: int
    max_slices: int
    hidden: int  # width of hidden rows; 0 = no hidden rows on this leg
    wire_dtype: WireDtype = field(default=WireDtype.F32)


CONTROL_BODY = 64 * 1024  # JSON bodies of control frames: far above what any of them needs
INITIAL_LIMITS = Limits(max_body=CONTROL_BODY, max_rows=0, max_slices=0, hidden=0)

ControlFrame = Open | Progress | Ready | Ping | Pong | StatsRequest | Stats | Error | Goodbye
AttachFrame = Attach | Attached | NotYet
InBand = Cancel | Close | Compact | Fork
DataFrame = Forward | Result | InBand
Frame = ControlFrame | AttachFrame | DataFrame
