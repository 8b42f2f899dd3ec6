"""What a stage engine must do. No OpenVINO here.

An engine holds one shard and the KV cells of many sessions. It is called from one thread only, the
stage's inference thread. The caller (`peer/stage.py`) has already checked `first` and `rollback`
against `length()`, so an engine never sees a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fleetchat.ids import SessionKey


@dataclass(frozen=True, slots=True)
class EngineSlice:
    """Consecutive rows of one session.

    `first` is the logical position of the first row; the engine truncates the session to it before
    it appends. `token_ids` is int32 [rows]. `hidden` is f32 or f16 [rows, width] on stages after the
    first, else None. `logit_rows` is how many of the last rows need logits on the last stage
    (0 = none; other stages ignore it). `granted` is how many cells all sessions of the chain may hold
    together: an engine that shares cells between sessions counts them by itself (None = no limit).
    """

    key: SessionKey
    first: int
    token_ids: NDArray[np.int32]
    hidden: NDArray[np.floating] | None
    logit_rows: int
    granted: int | None = None


@dataclass(frozen=True, slots=True)
class SliceOutput:
    """What one slice gave.

    `rows` is f32 [rows, width] (hidden) on stages before the last, f32 [logit_rows, vocabulary] on
    the last one. It may be a view that the next `run` overwrites. When `fault` is set the slice
    failed, `rows` is empty, and the session's length is what it was before the slice.
    `fault` is (code, text), code being a value of `wire.frames.FaultCode`.
    """

    rows: NDArray[np.float32]
    fault: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one session on this stage. physical = live + dead."""

    live: int
    dead: int

    @property
    def physical(self) -> int:
        return self.live + self.dead


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What the coordinator must know of an engine (it goes into READY)."""

    name: str  # "masked" | "paged"
    sessions_per_batch: int
    can_fork: bool
    block_size: int  # cells; 1 when the engine has no blocks
    cells: int  # budget of this engine on this device, in cells


class StageEngine(Protocol):
    """Load is the constructor's work; it warms up before it returns."""

    @property
    def traits(self) -> EngineTraits: ...

    def length(self, key: SessionKey) -> int:
        """Logical length (live cells) of a session; 0 when unknown."""
        ...

    def cells(self, key: SessionKey) -> Cells: ...

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        """Truncate each session to its `first`, append the rows, return one output a slice, in order."""
        ...

    def truncate(self, key: SessionKey, length: int) -> None:
        """Hide every live cell at a logical position >= length. Its cost does not depend on the context."""
        ...

    def compact(self, key: SessionKey) -> bool:
        """Do one bounded step of getting rid of dead cells; True when the session is done.

        The ledger changes only when the last step is done. An engine without dead cells returns True.
        """
        ...

    def compacting(self, key: SessionKey) -> bool:
        """Whether a compaction is begun and not done; `run` and `truncate` of the session finish it."""
        ...

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        """Share the first `length` cells of `source`. Raises SliceFailed("unsupported") unless `can_fork`."""
        ...

    def forget(self, key: SessionKey) -> None:
        """Free all cells of a session. Unknown sessions are ignored."""
        ...

    def sessions(self) -> list[SessionKey]: ...

    def close(self) -> None: ...
