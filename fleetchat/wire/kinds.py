"""Names that travel as numbers or words: frame kinds, states, fault codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np

_FLOAT16: np.dtype[np.floating] = np.dtype("<f2")
_FLOAT32: np.dtype[np.floating] = np.dtype("<f4")


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
    OFFER = 64
    HAVE = 65
    CHUNK = 66
    KEPT = 67
    STORED = 68
    MEASURE = 72
    MEASURED = 73


class WireDtype(StrEnum):
    """How hidden rows travel."""

    F16 = "f16"
    F32 = "f32"

    @property
    def numpy(self) -> np.dtype[np.floating]:
        return _FLOAT16 if self is WireDtype.F16 else _FLOAT32


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
    PAUSED = "paused"  # the peer's owner wants it to serve nobody now
    LINK = "link"
    PROTOCOL = "protocol"
    INTERNAL = "internal"
