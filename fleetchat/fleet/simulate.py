"""A chain in virtual time: what the batch former is judged on (pure; no clock, no socket).

Stages serve batches in order of arrival, one at a time; legs delay them and keep their order. Only
the coordinator decides anything, so a batch's whole way through the chain is known when it is sent.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random

from fleetchat.fleet.batching import NEVER, PREFILL_ROWS, ChainLimits, Load, ReadyFeed, Share, next_batch
from fleetchat.fleet.overlap import OverlapKeeper
from fleetchat.fleet.pace import PaceKeeper
from fleetchat.fleet.recorder import nearest_rank
from fleetchat.wire.frames import StageTiming

StageCost = Callable[[Sequence[int]], float]  # rows of each slice of a batch -> seconds


def one_by_one(slice_seconds: float, row_seconds: float) -> StageCost:
    """An engine that runs slice after slice: each costs so much, and every further row so much more."""
    return lambda rows: sum(slice_seconds + row_seconds * (one - 1) for one in rows)


def together(batch_seconds: float, row_seconds: float) -> StageCost:
    """An engine that runs all slices of a batch in one pass."""
    return lambda rows: batch_seconds + row_seconds * (sum(rows) - 1)


@dataclass(frozen=True, slots=True)
class SimulatedChain:
    """`legs` are one-way delays: into each stage, and the return. `turnaround` is what the coordinator takes
    from a RESULT to the next feeds of its sessions. `jitter` is every time's standard deviation, relative.
    `crowding`: so much longer does a stage take for a batch that is not alone in the chain, as stages on one
    machine do.
    """

    stages: tuple[StageCost, ...]
    legs: tuple[float, ...]
    turnaround: float = 0.0
    jitter: float = 0.0
    crowding: float = 0.0
    window: int = 32
    sessions_per_batch: int = 1
    max_rows: int = 8192

    @property
    def limits(self) -> ChainLimits:
        return ChainLimits(len(self.stages), self.window, self.sessions_per_batch, self.max_rows, 64)


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """Arrives at `arrives` with a prompt, then streams `tokens`, `tokens_a_round` for `rows` rows each."""

    arrives: float
    prompt: int
    tokens: int
    rows: int = 1
    tokens_a_round: int = 1
    focused: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """One batch: when it was sent and came back, and (arrival, start, end) on each stage."""

    shares: tuple[Share, ...]
    chunk: int | None  # the session in prefill
    sent: float
    returned: float
    stages: tuple[tuple[float, float, float], ...]
    calm: bool  # no prefill was in the chain when it was sent


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between tokens, nearest rank."""

    p50: float
    p95: float
    longest: float
    count: int


@dataclass(slots=True)
class Simulation:
    """What happened. `token_times[s]` has an entry a round of session s, weighted by `tokens_a_round`."""

    passages: list[Passage] = field(default_factory=list)
    token_times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ready_times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    sent_times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    max_in_flight: int = 0

    @property
    def end(self) -> float:
        return max((passage.returned for passage in self.passages), default=0.0)

    def utilisation(self, begin: float = 0.0, end: float | None = None) -> tuple[float, ...]:
        """Share of the time that each stage was busy."""
        until = self.end if end is None else end
        stages = len(self.passages[0].stages) if self.passages else 0
        busy = [
            sum(max(0.0, min(until, p.stages[s][2]) - max(begin, p.stages[s][1])) for p in self.passages)
            for s in range(stages)
        ]
        return tuple(seconds / (until - begin) for seconds in busy)

    def tokens_per_s(self, begin: float = 0.0, end: float | None = None, tokens_a_round: int = 1) -> float:
        until = self.end if end is None else end
        rounds = sum(begin < when <= until for times in self.token_times.values() for when in times)
        return rounds * tokens_a_round / (until - begin)

    def gaps(self, session: int, begin: float = 0.0, end: float | None = None) -> Gaps:
        """Between the rounds of one session that came back within the time."""
        until = self.end if end is None else end
        times = [when for when in self.token_times[session] if begin <= when <= until]
        found = sorted(later - earlier for earlier, later in pairwise(times))
        if not found:
            return Gaps(0.0, 0.0, 0.0, 0)
        return Gaps(nearest_rank(found, 0.5), nearest_rank(found, 0.95), found[-1], len(found))

    def fairness(self, sessions: Sequence[int], begin: float, end: float) -> float:
        """Jain's index of the rounds that each session got: 1 = all alike, 1/n = one got everything."""
        got = [sum(begin < when <= end for when in self.token_times[session]) for session in sessions]
        squares = sum(value * value for value in got)
        return sum(got) ** 2 / (len(got) * squares) if squares else 1.0

    def longest_wait(self, session: int) -> float:
        """Seconds from ready to sent, of any feed's first rows."""
        waits = zip(self.ready_times[session], self.sent_times[session], strict=False)
        return max((sent - ready for ready, sent in waits), default=0.0)


@dataclass(slots=True)
class _Feed:
    """What a session has on the coordinator's list."""

    rows: int  # not sent yet
    since: float
    prefill: bool
    in_flight: int = 0  # chunks


def simulate(
    chain: SimulatedChain, sessions: Sequence[SimulatedSession], *, seconds: float, seed: int = 0
) -> Simulation:
    """Run until all sessions are done, or nothing begins after `seconds`. Sessions are numbered from 0."""
    run = _Run(chain, sessions, seconds, seed)
    run.go()
    return run.simulation


class _Run:
    def __init__(
        self, chain: SimulatedChain, sessions: Sequence[SimulatedSession], seconds: float, seed: int
    ) -> None:
        self.simulation = Simulation()
        self._chain = chain
        self._sessions = sessions
        self._seconds = seconds
        self._random = Random(seed)
        self._order = count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._feeds: dict[int, _Feed] = {}
        self._active: set[int] = set()
        self._pace = PaceKeeper()
        self._overlap = OverlapKeeper()
        self._in_flight: list[Passage] = []
        self._last_chunk = NEVER
        self._stage_free = [0.0] * len(chain.stages)
        self._leg_last = [0.0] * len(chain.legs)

    def go(self) -> None:
        for number, session in enumerate(self._sessions):
            self._at(session.arrives, lambda now, number=number: self._arrive(number, now))  # type: ignore[misc]
        while self._events:
            now, _, event = heapq.heappop(self._events)
            if now > self._seconds:
                return
            event(now)
            if not self._events or self._events[0][0] > now:  # all that happens at once is known
                self._send_all(now)

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _arrive(self, number: int, now: float) -> None:
        session = self._sessions[number]
        self._active.add(number)
        self._hand_in(number, session.prompt, now)

    def _hand_in(self, number: int, rows: int, now: float) -> None:
        self._feeds[number] = _Feed(rows, now, rows >= PREFILL_ROWS)
        self.simulation.ready_times[number].append(now)
        self.simulation.sent_times[number].append(float("inf"))

    def _send_all(self, now: float) -> None:
        while shares := next_batch(self._ready(), self._chain.limits, self._load(), self._pace.pace):
            self._send(shares, now)

    def _ready(self) -> list[ReadyFeed]:
        return [
            ReadyFeed(number, feed.rows, feed.since, feed.prefill, self._sessions[number].focused)
            for number, feed in self._feeds.items()
            if feed.rows
        ]

    def _load(self) -> Load:
        prefilling = sum(feed.prefill for feed in self._feeds.values())
        load = Load(
            batches=tuple(len(p.shares) - (p.chunk is not None) for p in self._in_flight),
            streaming=len(self._active) - prefilling,
            prefilling=prefilling,
            chunks=self._chunks(),
            last_chunk=self._last_chunk,
        )
        return self._overlap.capped(load, self._chain.limits, self._pace.pace)

    def _chunks(self) -> int:
        return sum(passage.chunk is not None for passage in self._in_flight)

    def _send(self, shares: tuple[Share, ...], now: float) -> None:
        chunk = next((one.session for one in shares if self._feeds[one.session].prefill), None)
        for share in shares:
            feed = self._feeds[share.session]
            feed.rows -= share.rows
            feed.in_flight += 1
            feed.since = now
            times = self.simulation.sent_times[share.session]
            times[-1] = min(times[-1], now)
        if chunk is not None:
            self._last_chunk = now
        stages, returned = self._way([share.rows for share in shares], now)
        passage = Passage(shares, chunk, now, returned, stages, calm=not self._chunks())
        self._in_flight.append(passage)
        self.simulation.passages.append(passage)
        self.simulation.max_in_flight = max(self.simulation.max_in_flight, len(self._in_flight))
        self._at(returned + self._chain.turnaround, lambda then: self._return(passage, then))

    def _way(self, rows: list[int], now: float) -> tuple[tuple[tuple[float, float, float], ...], float]:
        stages = []
        longer = 1 + self._chain.crowding if self._in_flight else 1.0
        for index, cost in enumerate(self._chain.stages):
            arrival = self._over(index, now)
            start = max(arrival, self._stage_free[index])
            now = self._stage_free[index] = start + self._jittered(longer * cost(rows))
            stages.append((arrival, start, now))
        return tuple(stages), self._over(len(self._chain.stages), now)

    def _over(self, leg: int, now: float) -> float:
        arrival = max(self._leg_last[leg], now + self._jittered(self._chain.legs[leg]))
        self._leg_last[leg] = arrival
        return arrival

    def _jittered(self, seconds: float) -> float:
        factor = self._random.gauss(1.0, self._chain.jitter) if self._chain.jitter else 1.0
        return seconds * min(max(factor, 0.3), 3.0)

    def _return(self, passage: Passage, now: float) -> None:
        self._in_flight.remove(passage)
        prefill_rows = sum(one.rows for one in passage.shares if one.session == passage.chunk)
        self._pace.note(
            [_timing(*times) for times in passage.stages],
            rows=sum(share.rows for share in passage.shares),
            prefill_rows=prefill_rows,
            seconds=passage.returned - passage.sent,
            calm=passage.calm and not self._chunks(),
        )
        tokens = sum(self._sessions[share.session].tokens_a_round for share in passage.shares)
        calm = passage.calm and not self._chunks()
        self._overlap.note(now, self._load(), self._chain.limits, self._pace.pace, tokens if calm else None)
        for share in passage.shares:
            feed = self._feeds[share.session]
            feed.in_flight -= 1
            if feed.rows == 0 and feed.in_flight == 0:
                self._end_round(share.session, now)

    def _end_round(self, number: int, now: float) -> None:
        session, simulation = self._sessions[number], self.simulation
        simulation.token_times[number].append(now)
        simulation.tokens[number] += session.tokens_a_round
        del self._feeds[number]
        if simulation.tokens[number] >= session.tokens:
            self._active.discard(number)
            return
        self._hand_in(number, session.rows, now)


def _timing(arrival: float, start: float, end: float) -> StageTiming:
    return StageTiming(round((start - arrival) * 1e6), round((end - start) * 1e6), 0, ())
