"""The frames of the protocol, as values. How they become bytes is `codec.py`'s work.

Two rules: a frame that can be built is a legal frame (the constructors check, and raise
LocalProtocolError), and no frame carries an attention mask or logits. Texts for people are cleaned and
cut by the constructors, so that reporting a fault never fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetchat.wire.batch_frames import (
    Cancel,
    Close,
    Compact,
    Draw,
    Fork,
    Forward,
    Result,
    Slice,
    SliceResult,
    StageTiming,
)
from fleetchat.wire.checks import (
    CONTROL_BODY,
    MAX_BODY,
    MAX_FAULT_TEXT,
    MAX_HIDDEN,
    MAX_NAME,
    MAX_ROWS,
    MAX_SESSIONS_IN_STATS,
    MAX_SLICES,
    MAX_STAGES,
    MAX_TEXT,
)
from fleetchat.wire.control_frames import (
    Attach,
    Attached,
    Error,
    Goodbye,
    NotYet,
    Open,
    Ping,
    Pong,
    Progress,
    Ready,
    SessionStats,
    Stats,
    StatsRequest,
)
from fleetchat.wire.kinds import AttachRole, FaultCode, Kind, ResultStatus, SliceStatus, WireDtype
from fleetchat.wire.shard_frames import Chunk, Have, Kept, Measure, Measured, Offer, ShardFile, Stored

__all__ = [
    "CONTROL_BODY",
    "INITIAL_LIMITS",
    "MAX_BODY",
    "MAX_FAULT_TEXT",
    "MAX_HIDDEN",
    "MAX_NAME",
    "MAX_ROWS",
    "MAX_SESSIONS_IN_STATS",
    "MAX_SLICES",
    "MAX_STAGES",
    "MAX_TEXT",
    "Attach",
    "AttachFrame",
    "AttachRole",
    "Attached",
    "Cancel",
    "Chunk",
    "Close",
    "Compact",
    "ControlFrame",
    "DataFrame",
    "Draw",
    "Error",
    "FaultCode",
    "Fork",
    "Forward",
    "Frame",
    "Goodbye",
    "Have",
    "InBand",
    "Kept",
    "Kind",
    "Limits",
    "Measure",
    "Measured",
    "NotYet",
    "Offer",
    "Open",
    "Ping",
    "Pong",
    "Progress",
    "Ready",
    "Result",
    "ResultStatus",
    "SessionStats",
    "ShardFile",
    "Slice",
    "SliceResult",
    "SliceStatus",
    "StageTiming",
    "Stats",
    "StatsRequest",
    "Stored",
    "WireDtype",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection accepts; known before OPEN as `INITIAL_LIMITS`, after it from OPEN."""

    max_body: int  # bytes
    max_rows: int
    max_slices: int
    hidden: int  # width of hidden rows; 0 = no hidden rows on this leg
    wire_dtype: WireDtype = WireDtype.F32
    vocabulary: int = 0  # token ids must be below it; 0 = not known yet


INITIAL_LIMITS = Limits(max_body=CONTROL_BODY, max_rows=0, max_slices=0, hidden=0)

ControlFrame = Open | Progress | Ready | Ping | Pong | StatsRequest | Stats | Error | Goodbye
AttachFrame = Attach | Attached | NotYet
InBand = Cancel | Close | Compact | Fork
DataFrame = Forward | Result | InBand
ShardFrame = Offer | Have | Chunk | Kept | Stored
MeasureFrame = Measure | Measured
Frame = ControlFrame | AttachFrame | DataFrame | ShardFrame | MeasureFrame
