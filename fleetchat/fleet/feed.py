"""What one session sends in one round: rows for the chain, whole or in chunks, and what came back.

Pure bookkeeping: the interleaver says how many rows go and what a RESULT said of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetchat.fleet.session import ChainState
from fleetchat.wire.frames import Draw, ResultStatus, Slice, SliceResult


@dataclass(slots=True, eq=False)
class Feed:
    """Rows `token_ids` for the positions `first`…; the last `drafts` of them are drafts.

    Only the chunk with the last row draws. `outcome` is that chunk's result, or the first failed one.
    """

    state: ChainState
    first: int
    token_ids: Sequence[int]
    draw: Draw
    drafts: int = 0
    on_rows_done: Callable[[int], None] = lambda rows: None
    sent: int = 0
    done: int = 0
    rollback: int = 0  # of the first chunk: cells that the round before left behind
    outcome: SliceResult | None = None
    cells: tuple[tuple[int, int], ...] = ()  # (live, dead) a stage, as the last RESULT said
    traversal: tuple[int, float] | None = None  # rows and unqueued seconds of its batch; None with a prefill
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)  # (first, rows) without RESULT

    @property
    def rows_left(self) -> int:
        return len(self.token_ids) - self.sent

    @property
    def keep(self) -> int:
        """The length to which a CANCEL truncates: `first` of the oldest chunk without RESULT."""
        return self.in_flight[0][0] if self.in_flight else self.first + self.done

    def take(self, rows: int) -> Slice:
        """The next `rows` rows as a slice; the session's state takes note of them."""
        start, stop = self.sent, self.sent + rows
        last = stop == len(self.token_ids)
        first = self.first + start
        chunk = self.token_ids[start:stop]
        rollback = self.state.feed(first, chunk)
        if start == 0:
            self.rollback = rollback
        self.sent = stop
        self.in_flight.append((first, rows))
        return Slice(
            session=self.state.session,
            first=first,
            rollback=rollback,
            token_ids=np.asarray(chunk, dtype=np.int32),
            drafts=self.drafts if last else 0,
            draw=self.draw if last else None,
        )

    def note(self, result: SliceResult, cells: tuple[tuple[int, int], ...]) -> bool:
        """Take the RESULT of the oldest chunk; True when the round is over."""
        first, rows = self.in_flight.popleft()
        self.cells = cells
        if result.status is ResultStatus.FAILED:
            self.outcome = self.outcome or result
            return True
        self.done += rows
        self.state.confirm(first + rows)
        self.on_rows_done(self.done)
        if self.done == len(self.token_ids):
            self.outcome = self.outcome or result
        return self.outcome is not None
