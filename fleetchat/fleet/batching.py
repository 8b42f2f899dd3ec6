"""The batch former: who goes next, and how many batches are in the chain at once (pure).

Numbers in, numbers out. The interleaver carries the decisions out, the simulator judges them.

- A *feed* is what a session wants to send: one row (decode), a few (verify), or many (prefill).
- Batches in flight: ceil(unqueued traversal time / slowest stage's batch time), at least one a stage
  and at most the window; more would only queue. Ready sessions are spread evenly over them.
- Decode and verify feeds go in order of readiness. At most one prefill chunk travels in a batch, the
  focused session's first, then round robin; its size follows the measured time a row takes, so that
  the others' gaps stay short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_CHUNK = 16  # rows; below it the cost of a batch outweighs that of its rows
GAP_FACTOR = 1.25  # a chunk may take this many times as long on a stage as a batch without one


@dataclass(frozen=True, slots=True)
class ReadyFeed:
    """A session that could send now.

    `since` orders by readiness; `prefill` says that its rows may be cut into chunks; `turn` is the number
    of its last chunk. Feeds that are not prefill (decode, verify) are small and go whole.
    """

    session: int
    rows: int
    since: float
    prefill: bool = False
    focused: bool = False
    turn: int = 0


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """What the engine and the chain allow."""

    stages: int
    window: int
    sessions_per_batch: int
    max_rows: int
    max_slices: int


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the chain is. `streaming` counts sessions with a reply under way that are not in prefill."""

    in_flight: int
    active: int
    streaming: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured seconds; 0 = not known yet. `chunk_row` is a prefill row's time on the slowest stage."""

    traversal: float = 0.0
    slowest_stage: float = 0.0
    chunk_row: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """So many of a session's waiting rows go into the batch."""

    session: int
    rows: int


def batches_wanted(limits: ChainLimits, load: Load, pace: Pace) -> int:
    """How many batches should be in the chain, at least 1."""
    by_time = math.ceil(pace.traversal / pace.slowest_stage) if pace.slowest_stage > 0 else limits.stages
    return max(1, min(max(by_time, limits.stages), limits.window, load.active))


def batch_size(limits: ChainLimits, load: Load, pace: Pace) -> int:
    """Sessions in one batch, spread evenly over the batches in flight."""
    spread = math.ceil(load.active / batches_wanted(limits, load, pace))
    return max(1, min(spread, limits.sessions_per_batch, limits.max_slices))


def chunk_rows(feed: ReadyFeed, limits: ChainLimits, load: Load, pace: Pace) -> int:
    """Rows of the next prefill chunk: all of them when nobody else streams."""
    most = min(feed.rows, limits.max_rows)
    if load.streaming == 0:
        return most
    if pace.chunk_row <= 0 or pace.slowest_stage <= 0:
        return min(most, LEAST_CHUNK)
    affordable = int(GAP_FACTOR * pace.slowest_stage / pace.chunk_row)
    return min(most, max(LEAST_CHUNK, affordable))


def next_batch(ready: Sequence[ReadyFeed], limits: ChainLimits, load: Load, pace: Pace) -> tuple[Share, ...]:
    """What to send now; empty when the chain is full enough or nobody is ready."""
    if not ready or load.in_flight >= batches_wanted(limits, load, pace):
        return ()
    size = batch_size(limits, load, pace)
    room = limits.max_rows
    decodes = sorted((feed for feed in ready if not feed.prefill), key=lambda feed: feed.since)
    prefill = next_prefill(ready)
    chosen: list[Share] = []
    if prefill is not None and (len(decodes) < size or _prefill_first(prefill, decodes)):
        rows = chunk_rows(prefill, limits, load, pace)
        chosen.append(Share(prefill.session, rows))
        room -= rows
    for feed in decodes:
        if len(chosen) >= size or feed.rows > room:
            break
        chosen.append(Share(feed.session, feed.rows))
        room -= feed.rows
    return tuple(chosen)


def next_prefill(ready: Sequence[ReadyFeed]) -> ReadyFeed | None:
    """The focused session's prefill, else the one whose last chunk lies furthest back."""
    waiting = [feed for feed in ready if feed.prefill]
    return min(waiting, key=lambda feed: (not feed.focused, feed.turn, feed.since), default=None)


def _prefill_first(prefill: ReadyFeed, decodes: Sequence[ReadyFeed]) -> bool:
    """A prefill waits behind decodes only while they were ready before it: nobody starves."""
    return prefill.since < decodes[0].since
