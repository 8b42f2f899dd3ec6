"""The batch former: who goes next, and how many batches are in the chain at once (pure).

Numbers in, numbers out. The interleaver carries the decisions out, `simulate.py` judges them.

- A *feed* is what a session wants to send: one row (decode), a few (verify), or many (prefill).
- Batches in flight: unqueued traversal time / slowest stage's batch time, at least one a stage and at
  most the window; more would only queue. Rounded up where a batch is one slice: too many cost nothing
  there. Rounded to the nearest where slices share a pass: one batch more means smaller batches, and
  those cost up to a fifth of the speed (simulated: 8 sessions, 10 ms legs, 206 instead of 174 tokens/s).
  A session has one decode or verify feed in the chain, so more batches than sessions are of use only
  while a prefill is cut into chunks. Where fewer, larger ones are found to be faster (`overlap`), fewer.
- Streaming sessions are spread evenly over the batches, in order of readiness.
- While others stream, a prefill is cut into chunks that let the gaps of the others grow to STRETCH times
  what they were. The chunks in the chain are what the streams leave empty of it, at least one.
- At most one chunk travels in a batch: the focused session's, else that of the session which was served
  least recently. Where a batch has no place for a chunk beside the decodes, chunks take turns with them
  as if all prefills were one session, so that several prompts cost the others no more than one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

PREFILL_ROWS = 17  # a feed of fewer rows goes whole: cutting it would cost more than it spares the others
FIRST_CHUNK = 8  # rows, while it is not known what a row costs: several may be sent before one is back
# A prefill may make the gaps between the others' tokens so many times as long. Their p95 during it was at
# most 2.9 times their median before it in 192 simulated cases, with the costs of both engines.
STRETCH = 2.2
# The longest gap of a stream that is alone, in traversals. It meets the same chunk on every stage, and stages
# that idled beside it now compete with it for the machine (measured: two stages on two threads of one core).
LONGEST = 2.4
# Rows of a chunk that shares the chain with other prefills only: a third of what is left, within these. The
# last stages idle at the beginning and the first ones at the end, and every chunk costs a little: two stages
# prefilled 2,048 tokens 1.53 times as fast as one, with chunks of 128 1.47 times (CPU time, default model).
PIPELINED_CHUNK = 256
LAST_PIPELINED_CHUNK = 64
# Seconds of such a chunk on the slowest stage, from which on every prefill is cut so, on any engine: a large
# model reads 2,000 tokens in minutes, and what a chunk costs besides its rows is nothing to that. The stages
# overlap then, progress is seen, and a prompt that is given up leaves the stages soon.
SLOW_CHUNK = 1.0
SPARE = 0.25  # of the slowest stage's batch, on top of a traversal: keeps it busy when times vary by 10 %
NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class ReadyFeed:
    """A session that could send now.

    `since` is when it became ready, or when its last chunk was sent. `prefill` says that its rows may be
    cut into chunks; other feeds (decode, verify) are small and go whole.
    """

    session: int
    rows: int
    since: float
    prefill: bool = False
    focused: bool = False


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """What the engine and the chain allow."""

    stages: int
    window: int
    sessions_per_batch: int
    max_rows: int
    max_slices: int

    @property
    def places(self) -> int:
        """Slices in one batch."""
        return max(1, min(self.sessions_per_batch, self.max_slices))


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the chain is.

    `batches` has the streaming sessions in each batch in flight, `chunks` how many of the batches carry
    a prefill chunk, `last_chunk` when the last one was sent. `streaming` counts sessions with a reply under
    way that are not in prefill, `prefilling` those that are. `most` batches are wanted while nobody is in
    prefill; 0 = as many as there may be.
    """

    batches: tuple[int, ...] = ()
    streaming: int = 0
    prefilling: int = 0
    chunks: int = 0
    last_chunk: float = NEVER
    most: int = 0


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
    wanted = _base(limits, pace)
    if load.prefilling and _pipelines(limits, load, pace):
        wanted = max(wanted, limits.stages + 1)
    elif load.prefilling and load.streaming:
        # While a long chunk is on one stage, the streams keep the others busy.
        wanted = max(wanted, load.streaming + 1) if limits.places == 1 else wanted
    else:
        wanted = min(wanted, load.streaming + load.prefilling)
    if load.most and not load.prefilling:
        wanted = min(wanted, load.most)
    return max(1, min(wanted, limits.window))


def _base(limits: ChainLimits, pace: Pace) -> int:
    """As many as a traversal has room for, at least one a stage."""
    if pace.slowest_stage <= 0:
        return limits.stages
    by_time = math.ceil(pace.traversal / pace.slowest_stage + (SPARE if limits.places == 1 else -0.5))
    return min(max(by_time, limits.stages), limits.window)


def chunks_wanted(limits: ChainLimits, load: Load, pace: Pace) -> int:
    """How many chunks may be in the chain beside the streams: one, or what these leave empty."""
    base = _base(limits, pace)
    if load.streaming == 0 or limits.places > 1:
        return batches_wanted(limits, load, pace)
    return max(1, base - load.streaming)


def batch_size(limits: ChainLimits, load: Load, pace: Pace) -> int:
    """Streaming sessions in the next batch: sizes differ by at most one."""
    share, rest = divmod(load.streaming, batches_wanted(limits, load, pace))
    larger = sum(1 for size in load.batches if size > share)
    return max(1, min(share + (larger < rest), limits.places))


def chunk_rows(feed: ReadyFeed, limits: ChainLimits, load: Load, pace: Pace) -> int:
    """Rows of the next prefill chunk; when nobody streams, all of them or what lets the stages overlap."""
    most = min(feed.rows, limits.max_rows)
    if load.streaming == 0:
        return min(most, pipelined_rows(feed.rows)) if _pipelines(limits, load, pace) else most
    if pace.chunk_row <= 0 or pace.slowest_stage <= 0:
        return min(most, FIRST_CHUNK)
    affordable = min(chunk_seconds(limits, load, pace) / pace.chunk_row, most)
    return min(most, max(1, round(affordable)))


def pipelined_rows(left: int) -> int:
    """Rows of the next chunk of a prefill with `left` rows to go, when all stages are to work on it."""
    return max(LAST_PIPELINED_CHUNK, min(PIPELINED_CHUNK, left // 3))


def chunk_seconds(limits: ChainLimits, load: Load, pace: Pace) -> float:
    """What a chunk may take on the slowest stage, so that the streams' gaps grow to STRETCH times theirs.

    In a round that stage serves each batch of streams once, and the chunks that are in the chain. Fewer
    batches of streams than stages do not hide behind each other: each may wait for a chunk on every stage.
    """
    chunks = chunks_wanted(limits, load, pace)
    batches = load.streaming if limits.places == 1 else min(_base(limits, pace), load.streaming)
    gap = max(pace.traversal, batches * pace.slowest_stage)
    seconds = (STRETCH * gap - batches * pace.slowest_stage) / chunks
    if batches < limits.stages:
        return min(seconds, (LONGEST - 1) * pace.traversal / limits.stages)
    return seconds


def next_batch(ready: Sequence[ReadyFeed], limits: ChainLimits, load: Load, pace: Pace) -> tuple[Share, ...]:
    """What to send now; empty when the chain is full enough or nobody is ready."""
    if not ready or len(load.batches) >= batches_wanted(limits, load, pace):
        return ()
    decodes = sorted((feed for feed in ready if not feed.prefill), key=lambda feed: feed.since)
    decodes = decodes[: batch_size(limits, load, pace)]
    room = limits.max_rows
    chosen: list[Share] = []
    prefill = next_prefill(ready) if load.chunks < chunks_wanted(limits, load, pace) else None
    if prefill is not None and (len(decodes) < limits.places or _has_its_turn(prefill, decodes[0], load)):
        rows = chunk_rows(prefill, limits, load, pace)
        chosen.append(Share(prefill.session, rows))
        room -= rows
    for feed in decodes:
        if len(chosen) >= limits.places or feed.rows > room:
            break
        chosen.append(Share(feed.session, feed.rows))
        room -= feed.rows
    return tuple(chosen)


def _pipelines(limits: ChainLimits, load: Load, pace: Pace) -> bool:
    """Whether a prefill is cut although nobody streams: engines that run slices one by one are slow at it."""
    if load.streaming:
        return False
    return (limits.places > 1 and limits.stages > 1) or PIPELINED_CHUNK * pace.chunk_row >= SLOW_CHUNK


def next_prefill(ready: Sequence[ReadyFeed]) -> ReadyFeed | None:
    """The focused session's prefill, else the one that was served least recently."""
    waiting = [feed for feed in ready if feed.prefill]
    return min(waiting, key=lambda feed: (not feed.focused, feed.since), default=None)


def _has_its_turn(prefill: ReadyFeed, oldest: ReadyFeed, load: Load) -> bool:
    """Whether a chunk goes before the decode that has waited longest.

    Not while another chunk is in the chain, else chunks would fill it while a stream waits.
    """
    return not load.chunks and max(prefill.since, load.last_chunk) < oldest.since
