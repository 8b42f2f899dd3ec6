"""A fleet whose stages exist as arithmetic only: every time is known, on a clock that jumps.

The coordinator is the real one. What it sends is noted, and its RESULT is delivered when the stages would
have been done: a stage takes one batch after the other, `compute` says for how long. `log` is the raw log of
the run, from which a test works out what the panel must say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from fleetchat.fleet.chain import Chain, Stage
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, embedded_peers
from fleetchat.fleet.speculation import Speculation
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.watching import Readiness, poll_statistics, read_control
from fleetchat.ids import Address, SessionId
from fleetchat.wire.frames import (
    Cancel,
    Close,
    Compact,
    Forward,
    Ready,
    Result,
    ResultStatus,
    SessionStats,
    Slice,
    SliceResult,
    StageTiming,
    Stats,
)
from tests.fakes.engine import by_position
from tests.peer.builders import manifest

GRANTED = 1 << 16  # cells

Compute = Callable[[int, int, float], float]  # (stage, rows, now) -> seconds


@dataclass(frozen=True)
class Passage:
    """One batch through one stage, in seconds of the clock."""

    start: float
    end: float
    queue: float

    @property
    def compute(self) -> float:
        return self.end - self.start

    @property
    def span(self) -> tuple[float, float]:
        return self.start, self.end


@dataclass(frozen=True)
class Logged:
    """One batch: its slices as (coordinator's session, rows, drafts, accepted), and where it was when."""

    sent: float
    returned: float
    slices: tuple[tuple[int, int, int, int], ...]
    passages: tuple[Passage, ...]
    drawn: tuple[int, ...]  # tokens that each slice emitted


@dataclass(frozen=True)
class Fed:
    """Rows of a session were sent; `rollback` cells before them no longer count."""

    session: int
    first: int
    rows: int
    rollback: int


@dataclass(frozen=True)
class Kept:
    """A session was told to keep so many cells."""

    session: int
    cells: int


@dataclass(frozen=True)
class Compacted:
    session: int


@dataclass(frozen=True)
class Asked:
    """A stage was asked for its statistics, and said that its process holds `memory` bytes."""

    stage: int
    memory: int


CellEvent = Fed | Kept | Compacted | Asked


@dataclass
class _Cells:
    live: int = 0
    dead: int = 0


@dataclass
class ScriptedChain:
    """Stands for the data link into stage 0. `legs` has one-way seconds, the way back last."""

    nursery: trio.Nursery
    legs: list[float]
    compute: Compute
    chain: Chain | None = None
    log: list[Logged] = field(default_factory=list)
    rollbacks: list[tuple[float, int, int]] = field(default_factory=list)  # (when, session, cells)
    compactions: int = 0
    cells: dict[int, _Cells] = field(default_factory=dict)
    cell_log: list[CellEvent] = field(default_factory=list)  # in the order in which it happened
    busy_until: list[float] = field(default_factory=list)
    unfinished: bool = False  # of a frame that was half written

    async def send(self, frame: object, *, shielded: bool = False) -> None:
        self.send_nowait(frame)
        await trio.lowlevel.checkpoint()

    def send_nowait(self, frame: object) -> bool:
        match frame:
            case Forward():
                self._forward(frame)
            case Cancel():
                self.cell_log.append(Kept(int(frame.session), frame.keep))
                cells = self.cells[frame.session]
                cells.dead += max(0, cells.live - frame.keep)
                cells.live = min(cells.live, frame.keep)
            case Compact():
                self.compactions += 1
                self.cell_log.append(Compacted(int(frame.session)))
                self.cells[frame.session].dead = 0
            case Close():
                self.cells.pop(frame.session, None)
        return True

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def _forward(self, frame: Forward) -> None:
        assert self.chain is not None
        sent = trio.current_time()
        rows = sum(one.rows for one in frame.slices)
        at, passages = sent, []
        for stage in range(len(self.legs) - 1):
            arrived = at + self.legs[stage]
            start = max(arrived, self.busy_until[stage])
            at = self.busy_until[stage] = start + self.compute(stage, rows, start)
            passages.append(Passage(start, at, start - arrived))
        results = [self._draw(one, sent) for one in frame.slices]
        cells = tuple((self.cells[one.session].live, self.cells[one.session].dead) for one in frame.slices)
        timings = tuple(
            StageTiming(round(one.queue * 1e6), round(one.compute * 1e6), 0, cells) for one in passages
        )
        returned = at + self.legs[-1]
        noted = tuple(
            (int(one.session), one.rows, one.drafts, drawn.accepted)
            for one, drawn in zip(frame.slices, results, strict=True)
        )
        emitted = tuple(drawn.accepted + 1 if drawn.status is ResultStatus.DRAWN else 0 for drawn in results)
        self.log.append(Logged(sent, returned, noted, tuple(passages), emitted))
        result = Result(frame.epoch, frame.sequence, tuple(results), timings)
        self.nursery.start_soon(self._deliver, self.chain, result, returned)

    def _draw(self, one: Slice, now: float) -> SliceResult:
        self.cell_log.append(Fed(int(one.session), one.first, one.rows, one.rollback))
        cells = self.cells.setdefault(one.session, _Cells())
        if one.rollback:
            self.rollbacks.append((now, int(one.session), one.rollback))
        cells.dead += one.rollback
        cells.live = one.first + one.rows
        if one.draw is None:
            return SliceResult(one.session, ResultStatus.NO_DRAW)
        ids = one.token_ids.tolist()
        start = one.first + one.rows - one.drafts
        drafts = ids[one.rows - one.drafts :]
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == by_position(0, start + accepted):
            accepted += 1
        return SliceResult(one.session, ResultStatus.DRAWN, accepted, by_position(0, start + accepted))

    async def _deliver(self, chain: Chain, result: Result, at: float) -> None:
        await trio.sleep_until(at)
        for stage, leg in zip(chain.stages, self.legs, strict=False):
            stage.record.network_ms.add(at, leg * 1000)
        chain.return_network_ms.add(at, self.legs[-1] * 1000)
        chain.deliver(result)


class ScriptedControl:
    """Stands for the control link of one stage: every question is answered at once."""

    def __init__(self, link: ScriptedChain, stage: int) -> None:
        self._link, self._stage = link, stage
        self._answers, self._asked = trio.open_memory_channel[Stats](8)

    async def send(self, frame: object) -> None:
        memory = 100_000_000 * (self._stage + 1) + 1_000_000 * len(self._link.log)
        self._link.cell_log.append(Asked(self._stage, memory))
        held = {SessionId(number): cells for number, cells in self._link.cells.items()}
        used = sum(cells.live + cells.dead for cells in held.values())
        sessions = tuple(
            SessionStats(number, cells.live, cells.live, cells.dead) for number, cells in held.items()
        )
        await self._answers.send(Stats(sessions, GRANTED, used, 0, len(self._link.log), memory, 0, 0))

    async def receive(self) -> Stats:
        return await self._asked.receive()


@asynccontextmanager
async def scripted_fleet(
    compute: Compute,
    legs: list[float],
    *,
    drafter: Drafter | None = None,
    depth: int | None = None,
    context: int = 4096,
) -> AsyncIterator[tuple[Fleet, ScriptedChain]]:
    """A fleet of `len(legs) - 1` stages."""
    stages = len(legs) - 1
    build = manifest(stages, context=context)
    listed = [
        Stage(index, "", Address("10.0.0.1", 7000 + index), 3 * index, 3 * index + 2, StageState.READY)
        for index in range(stages)
    ]
    for stage in listed:
        stage.ready = Ready("0", "0", "CPU", 0, GRANTED, 8, "masked", 1, False, 1, "passed", "default")
    chain = Chain(listed, vocabulary=build.vocabulary)
    options = FleetOptions(build, Path("unused"), embedded_peers(stages), "fast", "masked", context)
    speculation = Speculation(drafter or NoDrafter(), depth=depth, max_draft=8, vocabulary=build.vocabulary)
    async with trio.open_nursery() as nursery:
        link = ScriptedChain(nursery, legs, compute, chain, busy_until=[0.0] * stages)
        chain.start(link, window=8)  # type: ignore[arg-type]
        fleet = Fleet(options, chain, speculation)
        nursery.start_soon(fleet.interleaver.run)
        readiness = Readiness(chain, lambda line: None)
        for stage in listed:
            control: Any = ScriptedControl(link, stage.index)
            nursery.start_soon(read_control, control, stage, chain, readiness)
            nursery.start_soon(poll_statistics, control, stage, chain)
        yield fleet, link
        nursery.cancel_scope.cancel()
