"""The frames of the protocol, as values. How they become bytes is `codec.py`'s work.

Two rules: a frame that can be built is a legal frame (the constructors check, and raise
LocalProtocolError), and no frame carries an attention mask or logits. Texts for people are cleaned and
cut by the constructors, so that reporting a fault never fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetchat.ids import Address, BatchSequence, BuildKey, ChainId, Epoch, SessionId, StageIndex
from fleetchat.wire.checks import (
    U16,
    U32,
    U64,
    clean_text,
    require,
    require_hexadecimal,
    require_host,
    require_number,
    require_whole,
)
from fleetchat.wire.kinds import AttachRole as AttachRole
from fleetchat.wire.kinds import FaultCode as FaultCode
from fleetchat.wire.kinds import Kind as Kind
from fleetchat.wire.kinds import ResultStatus as ResultStatus
from fleetchat.wire.kinds import SliceStatus as SliceStatus
from fleetchat.wire.kinds import WireDtype as WireDtype

CONTROL_BODY = 64 * 1024  # JSON bodies of control frames: far above what any of them needs
MAX_BODY = 256 * 1024 * 1024  # no link ever agrees to more: 65,536 rows of 1,024 in f32
MAX_ROWS = 65_536
MAX_SLICES = 1_024
MAX_HIDDEN = 65_536
MAX_STAGES = 256  # also the most timings in a batch
MAX_SESSIONS_IN_STATS = 1_024  # x 45 bytes of JSON stays below CONTROL_BODY
MAX_NAME = 128  # UTF-8 bytes of a version or a device name
MAX_FAULT_TEXT = 512  # of a slice's fault; every slice of a batch may carry one
MAX_TEXT = 2_048  # of a reason, an error or a hint

_INT32 = np.dtype("<i4")
_FAULT_CODES = frozenset(code.value for code in FaultCode)


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
        _clean(self, "what", MAX_FAULT_TEXT)
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

    def __post_init__(self) -> None:
        for name in ("fleetchat", "openvino", "device"):
            _clean(self, name, MAX_NAME)
        _clean(self, "self_check", MAX_FAULT_TEXT)
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
        _clean(self, "text", MAX_TEXT)
        _clean(self, "hint", MAX_TEXT)


@dataclass(frozen=True, slots=True)
class Goodbye:
    reason: str

    def __post_init__(self) -> None:
        _clean(self, "reason", MAX_TEXT)


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


@dataclass(frozen=True, slots=True)
class Draw:
    """How the last stage draws a token. See `engine.sampling`."""

    temperature: float  # 0 = arg max
    top_p: float  # 1 = off
    top_k: int  # 0 = off
    penalty: float  # repetition penalty, 1 = off
    seed: int  # u64
    reply_start: int  # logical position of the reply's first token

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, 0.0, 100.0)
        require_number("top_p", self.top_p, 0.0, 1.0)
        require(self.top_p > 0, "top_p must be above 0")
        require_whole("top_k", self.top_k)
        require_number("penalty", self.penalty, 0.01, 100.0)
        require_whole("seed", self.seed, 0, U64)
        require_whole("reply_start", self.reply_start)


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

    def __post_init__(self) -> None:
        ids = self.token_ids
        require_whole("session", self.session)
        require_whole("rollback", self.rollback)
        if not (isinstance(ids, np.ndarray) and ids.dtype == _INT32 and ids.ndim == 1):
            require(False, "token_ids must be an int32 array of one dimension")
        rows = len(ids)
        require_whole("rows", rows, 1, MAX_ROWS)
        require_whole("first", self.first, 0, U32 - rows)
        if int(ids.min()) < 0:
            require(False, "token ids must not be negative")
        require_whole("drafts", self.drafts, 0, rows - 1)
        require(self.draw is not None or not self.drafts, "a slice with drafts must draw")
        require(isinstance(self.status, SliceStatus), "status must be a SliceStatus")
        _check_fault(self, self.status is SliceStatus.FAILED)


@dataclass(frozen=True, slots=True)
class StageTiming:
    """What one stage says of one batch. `cells` has (live, dead) for each slice, in order."""

    queue_us: int
    compute_us: int
    received_bytes: int
    cells: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        require_whole("queue_us", self.queue_us, 0, U64)
        require_whole("compute_us", self.compute_us, 0, U64)
        require_whole("received_bytes", self.received_bytes, 0, U64)
        for live, dead in self.cells:
            require_whole("live", live)
            require_whole("dead", dead)


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

    def __post_init__(self) -> None:
        _check_batch(self.epoch, self.sequence, self.slices, self.timings)
        if len(self.slices) > 1:
            sessions = {piece.session for piece in self.slices}
            require(len(sessions) == len(self.slices), "a session must not be twice in one batch")
        if self.hidden is not None:
            rows = self.live_rows
            if not (isinstance(self.hidden, np.ndarray) and self.hidden.ndim == 2):
                require(False, "hidden must be an array of two dimensions")
            if self.hidden.shape[0] != rows:
                require(False, f"hidden must have {rows} rows, one for each row of a slice with status OK")

    @property
    def live_rows(self) -> int:
        """Rows of the slices with status OK: the rows of `hidden`."""
        return sum(len(piece.token_ids) for piece in self.slices if piece.status is SliceStatus.OK)


@dataclass(frozen=True, slots=True)
class SliceResult:
    """`token` is the one drawn after `accepted` accepted drafts; both 0 unless DRAWN."""

    session: SessionId
    status: ResultStatus
    accepted: int = 0
    token: int = 0
    fault_code: str = ""
    fault_text: str = ""

    def __post_init__(self) -> None:
        require_whole("session", self.session)
        require(isinstance(self.status, ResultStatus), "status must be a ResultStatus")
        if self.status is ResultStatus.DRAWN:
            require_whole("accepted", self.accepted, 0, MAX_ROWS)
            require_whole("token", self.token, 0, 2**31 - 1)
        else:
            require(self.accepted == 0 and self.token == 0, "only a drawn slice has a token")
        _check_fault(self, self.status is ResultStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Result:
    """Exactly one per FORWARD, last stage -> coordinator."""

    epoch: Epoch
    sequence: BatchSequence
    results: tuple[SliceResult, ...]
    timings: tuple[StageTiming, ...] = ()

    def __post_init__(self) -> None:
        _check_batch(self.epoch, self.sequence, self.results, self.timings)


@dataclass(frozen=True, slots=True)
class Cancel:
    """In-band. Skip queued slices of the session, then truncate it to `keep`."""

    epoch: Epoch
    session: SessionId
    keep: int

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)
        require_whole("keep", self.keep)


@dataclass(frozen=True, slots=True)
class Close:
    """In-band. Free the session's cells."""

    epoch: Epoch
    session: SessionId

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)


@dataclass(frozen=True, slots=True)
class Compact:
    """In-band, no answer."""

    epoch: Epoch
    session: SessionId

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.session)


@dataclass(frozen=True, slots=True)
class Fork:
    """In-band. `new` shares the first `length` cells of `source`."""

    epoch: Epoch
    new: SessionId
    source: SessionId
    length: int

    def __post_init__(self) -> None:
        _check_in_band(self.epoch, self.new)
        require_whole("source", self.source)
        require(self.new != self.source, "a fork needs a new session")
        require_whole("length", self.length)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection accepts; known before OPEN as `INITIAL_LIMITS`, after it from OPEN."""

    max_body: int  # bytes
    max_rows: int
    max_slices: int
    hidden: int  # width of hidden rows; 0 = no hidden rows on this leg
    wire_dtype: WireDtype = field(default=WireDtype.F32)
    vocabulary: int = 0  # token ids must be below it; 0 = not known yet


INITIAL_LIMITS = Limits(max_body=CONTROL_BODY, max_rows=0, max_slices=0, hidden=0)

ControlFrame = Open | Progress | Ready | Ping | Pong | StatsRequest | Stats | Error | Goodbye
AttachFrame = Attach | Attached | NotYet
InBand = Cancel | Close | Compact | Fork
DataFrame = Forward | Result | InBand
Frame = ControlFrame | AttachFrame | DataFrame


def _clean(frame: object, name: str, maximum_bytes: int) -> None:
    """Clean a text field of a frozen frame in its constructor."""
    object.__setattr__(frame, name, clean_text(name, getattr(frame, name), maximum_bytes))


def _check_fault(piece: Slice | SliceResult, failed: bool) -> None:
    if not failed:
        require(not piece.fault_code and not piece.fault_text, "only a failed slice carries a fault")
        return
    require(piece.fault_code in _FAULT_CODES, "a failed slice needs a fault code of FaultCode")
    _clean(piece, "fault_text", MAX_FAULT_TEXT)


def _check_in_band(epoch: int, session: int) -> None:
    require_whole("epoch", epoch, 1)
    require_whole("session", session)


def _check_batch(
    epoch: int, sequence: int, pieces: tuple[object, ...], timings: tuple[StageTiming, ...]
) -> None:
    require_whole("epoch", epoch, 1)
    require_whole("sequence", sequence)
    if not (isinstance(pieces, tuple) and 0 < len(pieces) <= MAX_SLICES):
        require(False, f"a batch is a tuple of 1 to {MAX_SLICES} slices")
    if not (isinstance(timings, tuple) and len(timings) <= MAX_STAGES):
        require(False, f"timings are a tuple of at most {MAX_STAGES}")
    for timing in timings:
        if len(timing.cells) != len(pieces):
            require(False, "a timing must have cells for every slice of the batch")
