"""The trio loop that carries out what the batch former decides.

Sessions hand in feeds and wait; RESULTs come back in the order of the batches. While one stage
finishes a step of one session, the stage before it already works on another's.

Between a RESULT and the next batch of its session only that is done which the batch depends on; the books
are kept (`settle`) while the chain works again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from fleetchat.errors import FleetError
from fleetchat.fleet.batching import (
    NEVER,
    PREFILL_ROWS,
    ChainLimits,
    Load,
    ReadyFeed,
    Share,
    batch_size,
    batches_wanted,
    next_batch,
)
from fleetchat.fleet.chain import UNTOUCHED, Chain
from fleetchat.fleet.feed import Feed
from fleetchat.fleet.overlap import OverlapKeeper
from fleetchat.fleet.pace import PaceKeeper
from fleetchat.fleet.timeline import PassedBatch, Piece, kind_of
from fleetchat.wire.frames import Cancel, Result, ResultStatus, StageTiming


@dataclass(slots=True, eq=False)
class _Entry:
    """A feed on the interleaver's list."""

    number: int
    feed: Feed
    since: float
    prefill: bool
    woken: trio.Event = field(default_factory=trio.Event)
    given_up: bool = False


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch in flight: whose chunks it carries. `streaming` are those entries that are not in prefill."""

    sent_at: float
    entries: list[_Entry] = field(default_factory=list)
    shares: list[tuple[int, int, int]] = field(default_factory=list)  # session, rows, drafts
    rows: int = 0
    prefill_rows: int = 0
    streaming: int = 0
    calm: bool = True  # no prefill was in the chain when it was sent, or when it came back

    def passed(self, returned: float, timings: tuple[StageTiming, ...]) -> PassedBatch:
        pieces = [Piece(session, rows, kind_of(rows, drafts)) for session, rows, drafts in self.shares]
        return PassedBatch(tuple(pieces), self.sent_at, returned, timings)


class Interleaver:
    """One a chain. `run` is its task; everything else is called by the sessions' tasks."""

    def __init__(self, chain: Chain, limits: ChainLimits) -> None:
        self.chain = chain
        self.pace = PaceKeeper()
        self._overlap = OverlapKeeper()
        self.focused: int | None = None
        self.active: set[int] = set()  # numbers of sessions with a reply under way
        self.on_passed: Callable[[PassedBatch], None] = lambda batch: None
        self._limits = limits
        self._entries: dict[int, _Entry] = {}
        self._in_flight: list[_Batch] = []  # in the order of sending
        self._chunks = 0  # how many of them carry rows of a prefill
        self._returned: deque[tuple[_Batch, Result, float]] = deque()  # that are not in the books yet
        self._last_chunk = NEVER
        self._kicked = trio.Event()
        chain.on_failure = self._fail_all

    def take_over(self, before: Interleaver) -> None:
        """Go on where another epoch of the chain ended: same sessions, same stages, nothing in flight."""
        before.settle()
        self.pace, self.active, self.focused = before.pace, before.active, before.focused
        self.on_passed = before.on_passed

    async def exchange(self, number: int, feed: Feed, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Send a session's feed and wait for its round. False when it was given up meanwhile.

        `meanwhile` is called once, when the feed is sent or has to wait. Raises what broke the chain.
        """
        self.chain.check()
        prefill = not feed.drafts and feed.rows_left >= PREFILL_ROWS
        entry = _Entry(number, feed, trio.current_time(), prefill)
        self._entries[number] = entry
        try:
            if self._goes_at_once(entry):
                await self._send((Share(number, feed.rows_left),))
            self._kick()
            meanwhile()
            self.settle()
            await entry.woken.wait()
        finally:
            entry.given_up = True
            if self._entries.get(number) is entry:
                del self._entries[number]
            self._kick()
        if feed.outcome is None:
            self.chain.check()
        return feed.outcome is not None

    def give_up(self, number: int) -> None:
        """Wake whoever waits for that session's round; what is in flight is discarded on arrival."""
        entry = self._entries.get(number)
        if entry is not None:
            entry.woken.set()

    async def cancel(self, feed: Feed) -> None:
        """Tell the stages to forget what `feed` has in flight, and how long the session stays."""
        keep = feed.state.kept(feed.keep)
        if feed.sent and feed.state.length > keep:
            feed.state.truncate(keep)
            await self.chain.send_in_band(Cancel(self.chain.epoch, feed.state.session, keep=keep))

    @property
    def in_flight_since(self) -> float | None:
        """When the oldest batch in the chain was sent; None when the chain is empty."""
        return self._in_flight[0].sent_at if self._in_flight else None

    async def run(self) -> None:
        """Send batches until cancelled or until the chain fails."""
        while True:
            await self._kicked.wait()
            # The sessions that a RESULT woke hand in their next feeds in this turn of the event loop.
            # Deciding before them would give their places to others, to a prefill's next chunk for instance.
            await trio.lowlevel.checkpoint()
            self._kicked = trio.Event()
            while shares := self._next():
                try:
                    await self._send(shares)
                except FleetError:
                    return  # the chain has failed, everybody who waits has been told

    def _goes_at_once(self, entry: _Entry) -> bool:
        """Whether `next_batch` would send this feed alone, whatever the others hand in in this moment.

        Not asking it, and not waiting for `run`, saves three turns of the event loop a token.
        """
        if entry.prefill or entry.feed.rows_left > self._limits.max_rows:
            return False
        if len(self._entries) == 1 and self.active <= self._entries.keys():
            return not self._in_flight
        if any(
            other.prefill or (other.feed.rows_left and other is not entry) for other in self._entries.values()
        ):
            return False
        load, pace = self._load(), self.pace.pace
        wanted = batches_wanted(self._limits, load, pace)
        return len(self._in_flight) < wanted and batch_size(self._limits, load, pace) == 1

    def _next(self) -> Sequence[Share]:
        ready = [
            ReadyFeed(
                entry.number,
                entry.feed.rows_left,
                entry.since,
                entry.prefill,
                entry.number == self.focused,
            )
            for entry in self._entries.values()
            if entry.feed.rows_left and not entry.given_up
        ]
        return next_batch(ready, self._limits, self._load(), self.pace.pace)

    def _load(self) -> Load:
        prefilling = sum(1 for entry in self._entries.values() if entry.prefill)
        load = Load(
            batches=tuple(batch.streaming for batch in self._in_flight),
            streaming=len(self.active | self._entries.keys()) - prefilling,
            prefilling=prefilling,
            chunks=self._chunks,
            last_chunk=self._last_chunk,
        )
        return self._overlap.capped(load, self._limits, self.pace.pace)

    async def _send(self, shares: Sequence[Share]) -> None:
        batch = _Batch(trio.current_time(), calm=not self._chunks)
        slices = []
        for share in shares:
            entry = self._entries[share.session]
            entry.since = batch.sent_at
            slices.append(entry.feed.take(share.rows))
            batch.entries.append(entry)
            batch.shares.append((entry.number, share.rows, entry.feed.drafts))
            batch.rows += share.rows
            batch.prefill_rows += share.rows if entry.prefill else 0
            batch.streaming += not entry.prefill
        if batch.prefill_rows:
            self._chunks += 1
            self._last_chunk = batch.sent_at
        self._in_flight.append(batch)
        await self.chain.send_batch(tuple(slices), lambda result: self._arrived(batch, result))

    def _arrived(self, batch: _Batch, result: Result) -> None:
        """A RESULT of ours: wake the sessions whose round is over."""
        self._in_flight.remove(batch)
        if batch.prefill_rows:
            self._chunks -= 1
        now = trio.current_time()
        batch.calm = batch.calm and not self._chunks
        self._returned.append((batch, result, now))
        traversal = _traversal(batch, result, now - batch.sent_at)
        for index, (entry, outcome) in enumerate(zip(batch.entries, result.results, strict=True)):
            if entry.given_up:
                continue  # cancelled: its tokens are neither committed nor counted
            cells = tuple([timing.cells[index] for timing in result.timings])
            entry.feed.traversal = traversal
            if entry.feed.note(outcome, cells):
                entry.woken.set()
        self._kick()

    def settle(self) -> None:
        """Keep the books of the batches that came back: the stages' times, the timeline, the pace."""
        while self._returned:
            batch, result, now = self._returned.popleft()
            for stage, timing in zip(self.chain.stages, result.timings, strict=False):
                stage.record.add_batch(now, queue_us=timing.queue_us, compute_us=timing.compute_us)
            self.on_passed(batch.passed(now, result.timings))
            if _computed(result):
                self.pace.note(
                    result.timings,
                    rows=batch.rows,
                    prefill_rows=batch.prefill_rows,
                    seconds=now - batch.sent_at,
                    calm=batch.calm,
                )
            tokens = _tokens(result) if batch.calm and _computed(result) else None
            self._overlap.note(now, self._load(), self._limits, self.pace.pace, tokens)

    def _kick(self) -> None:
        """Have the next batches decided, if there is anything to send."""
        for entry in self._entries.values():
            if entry.feed.rows_left and not entry.given_up:
                self._kicked.set()
                return

    def _fail_all(self) -> None:
        for entry in self._entries.values():
            entry.woken.set()
        self._kicked.set()


def _computed(result: Result) -> bool:
    """What was not computed took no time, and says nothing about what is."""
    return UNTOUCHED.isdisjoint([one.status for one in result.results])


def _tokens(result: Result) -> int:
    return sum(one.accepted + 1 for one in result.results if one.status is ResultStatus.DRAWN)


def _traversal(batch: _Batch, result: Result, seconds: float) -> tuple[int, float] | None:
    """Rows and unqueued seconds of a batch without prefill; None when it says nothing about others."""
    if batch.prefill_rows or not _computed(result):
        return None
    queued = sum([timing.queue_us for timing in result.timings]) / 1e6
    return batch.rows, max(0.0, seconds - queued)
