"""The trio loop that carries out what the batch former decides.

Sessions hand in feeds and wait; RESULTs come back in the order of the batches. While one stage
finishes a step of one session, the stage before it already works on another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from fleetchat.errors import FleetError
from fleetchat.fleet.batching import ChainLimits, Load, ReadyFeed, Share, next_batch
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.feed import Feed
from fleetchat.fleet.pace import PaceKeeper
from fleetchat.wire.frames import Cancel, Result

PREFILL_ROWS = 17  # a feed of fewer rows goes whole: cutting it would cost more than it spares the others


@dataclass(slots=True, eq=False)
class _Entry:
    """A feed on the interleaver's list."""

    number: int
    feed: Feed
    since: float
    prefill: bool
    focused: bool
    woken: trio.Event = field(default_factory=trio.Event)
    given_up: bool = False


@dataclass(slots=True)
class _Batch:
    """A batch in flight: whose chunks it carries."""

    entries: list[_Entry]
    rows: int
    prefill_rows: int
    sent_at: float


class Interleaver:
    """One a chain. `run` is its task; everything else is called by the sessions' tasks."""

    def __init__(self, chain: Chain, limits: ChainLimits) -> None:
        self.chain = chain
        self.pace = PaceKeeper()
        self.focused: int | None = None
        self.active: set[int] = set()  # numbers of sessions with a reply under way
        self._limits = limits
        self._entries: dict[int, _Entry] = {}
        self._in_flight = 0
        self._turns: dict[int, int] = {}
        self._turn = 0
        self._kicked = trio.Event()
        chain.on_failure = self._fail_all

    async def exchange(self, number: int, feed: Feed) -> bool:
        """Send a session's feed and wait for its round. False when it was given up meanwhile.

        Raises what broke the chain.
        """
        self.chain.check()
        prefill = not feed.drafts and feed.rows_left >= PREFILL_ROWS
        entry = _Entry(number, feed, trio.current_time(), prefill, number == self.focused)
        self._entries[number] = entry
        self._kick()
        try:
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
        keep = feed.keep
        if feed.sent and feed.state.length > keep:
            feed.state.truncate(keep)
            await self.chain.send_in_band(Cancel(self.chain.epoch, feed.state.session, keep=keep))

    async def run(self) -> None:
        """Send batches until cancelled or until the chain fails."""
        while True:
            await self._kicked.wait()
            self._kicked = trio.Event()
            while shares := self._next():
                try:
                    await self._send(shares)
                except FleetError:
                    return  # the chain has failed, everybody who waits has been told

    def _next(self) -> Sequence[Share]:
        ready = [
            ReadyFeed(
                entry.number,
                entry.feed.rows_left,
                entry.since,
                entry.prefill,
                entry.focused,
                self._turns.get(entry.number, 0),
            )
            for entry in self._entries.values()
            if entry.feed.rows_left and not entry.given_up
        ]
        return next_batch(ready, self._limits, self._load(), self.pace.pace)

    def _load(self) -> Load:
        prefilling = sum(1 for entry in self._entries.values() if entry.prefill)
        active = max(len(self.active), len(self._entries))
        return Load(in_flight=self._in_flight, active=active, streaming=active - prefilling)

    async def _send(self, shares: Sequence[Share]) -> None:
        now = trio.current_time()
        batch = _Batch([], 0, 0, now)
        slices = []
        for share in shares:
            entry = self._entries[share.session]
            slices.append(entry.feed.take(share.rows))
            batch.entries.append(entry)
            batch.rows += share.rows
            if entry.prefill:
                batch.prefill_rows += share.rows
                self._turn += 1
                self._turns[entry.number] = self._turn
            entry.since = now
        self._in_flight += 1
        await self.chain.send_batch(tuple(slices), lambda result: self._arrived(batch, result))

    def _arrived(self, batch: _Batch, result: Result) -> None:
        """A RESULT of ours: wake the sessions whose round is over."""
        self._in_flight -= 1
        seconds = trio.current_time() - batch.sent_at
        self.pace.note(result.timings, rows=batch.rows, prefill_rows=batch.prefill_rows, seconds=seconds)
        queued = sum(timing.queue_us for timing in result.timings) / 1e6
        traversal = None if batch.prefill_rows else (batch.rows, max(0.0, seconds - queued))
        for index, (entry, outcome) in enumerate(zip(batch.entries, result.results, strict=True)):
            if entry.given_up:
                continue  # cancelled: its tokens are neither committed nor counted
            cells = tuple(timing.cells[index] for timing in result.timings)
            entry.feed.traversal = traversal
            if entry.feed.note(outcome, cells):
                entry.woken.set()
        self._kick()

    def _kick(self) -> None:
        self._kicked.set()

    def _fail_all(self) -> None:
        for entry in self._entries.values():
            entry.woken.set()
        self._kick()
