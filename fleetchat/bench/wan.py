"""`bench wan`: what is left of the speed when the machines are far from each other.

Two fleets on the same cores, of which one works at a time: one without delay, which shows what the chain
costs by itself, and one behind relays. Both lead their data links through relays, so that these cost
both alike.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from fleetchat.bench.bound import bound, costs_at, emitted_a_round, rounds_of
from fleetchat.bench.fleet_side import FleetSide
from fleetchat.bench.pairs import Effort, Measure, Row, alternate, fastest, paired_row
from fleetchat.bench.relay import RelayedLegs, Shape, is_between_machines
from fleetchat.bench.replies import decode_rate
from fleetchat.bench.report import Report
from fleetchat.bench.scale import MAX_TOKENS, PROMPTS_A_PAIR, Plan, check_plan, planned_options
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.workloads import turned
from fleetchat.errors import FleetchatError, InputError
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.telemetry import Answer
from fleetchat.fleet.timeline import PassedBatch

FIXED_DEPTHS = (0, 1, 2, 4, 8)  # that adaptive depth is compared with
FULL_PAIRS_SESSIONS = 4  # the rows of so many sessions get all pairs,
FEW_PAIRS = 3  # the rest of the grid these
STAGES = 2
NEAR = "without delay"


@dataclass(frozen=True, slots=True)
class WanPlan:
    """`plan` says what the chain runs; delays are one way, in milliseconds."""

    plan: Plan
    delays: tuple[float, ...]
    sessions: tuple[int, ...]


def check_wan_plan(asked: WanPlan) -> None:
    """Raise InputError for what cannot be measured."""
    if any(not 0 <= delay <= 1000 for delay in asked.delays):
        raise InputError("--delay must be 0 to 1000 ms")
    for sessions in asked.sessions:
        check_plan(replace(asked.plan, sessions=sessions))


def row_name(plan: Plan, delay: float, sessions: int) -> str:
    """`wan.{delay}ms.{sessions}s.{drafter}.{K|adaptive}`."""
    depth = "adaptive" if plan.depth is None else str(plan.depth)
    return f"wan.{delay:g}ms.{sessions}s.{plan.drafter}.{'0' if plan.drafter == 'none' else depth}"


def effort_for(effort: Effort, sessions: int) -> Effort:
    """How many pairs a row of the grid gets."""
    if sessions == FULL_PAIRS_SESSIONS:
        return effort
    return replace(effort, pairs=min(effort.pairs, FEW_PAIRS))


async def measure_wan(setting: Setting, asked: WanPlan) -> Report:
    """Rows `wan.…/bound`, and `/best-fixed` where the depth is adaptive. Raises FleetchatError."""
    check_wan_plan(asked)
    subject = await prepare(setting, asked.plan.stages)
    rows: list[Row] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        options = planned_options(setting, subject, asked.plan, Path(folder))
        for delay in asked.delays:
            for sessions in asked.sessions:
                cell = _Cell(setting, subject, replace(asked.plan, sessions=sessions), delay)
                rows += await cell.measure(options)
                notes += cell.notes
    return _report(setting, subject, asked, rows, notes)


@dataclass
class _Site:
    """A fleet and what was seen of it in the members so far."""

    fleet: Fleet
    side: FleetSide
    batches: list[PassedBatch] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        before = self.fleet.interleaver.on_passed

        def note(batch: PassedBatch) -> None:
            before(batch)
            self.batches.append(batch)

        self.fleet.interleaver.on_passed = note
        self.side.on_answer = self.answers.append

    def forget(self) -> None:
        self.batches.clear()
        self.answers.clear()


class _Cell:
    """One delay and number of sessions: one cell of the grid."""

    def __init__(self, setting: Setting, subject: Subject, plan: Plan, delay: float) -> None:
        self._setting = setting
        self._effort = effort_for(setting.effort, plan.sessions)
        self._subject = subject
        self._plan = plan
        self._delay = delay / 1000
        self._name = row_name(plan, delay, plan.sessions)
        self._prompts = subject.workload_ids(plan.workload)
        self._bounds: list[float] = []
        self.notes: list[str] = []

    async def measure(self, options: FleetOptions) -> list[Row]:
        async with AsyncExitStack() as stack:
            near = await self._open(options, 0.0, stack)
            far = await self._open(options, self._delay, stack)
            depths = self._depths()
            members = {NEAR: self._member(near, self._plan.depth)}
            for name, depth in depths.items():
                members[name] = self._member(far, depth)
            members[self._name] = self._against_bound(near, members[NEAR], far, members.pop(self._name))
            del members[NEAR]
            for name, member in members.items():
                self._setting.note(f"{self._name}, warming up: {name}")
                await member(0)
            self._bounds.clear()
            measured = await alternate(members, self._effort.pairs, self._note_pair)
            self._note_network(far)
        return self._rows(measured)

    def _depths(self) -> dict[str, int | None]:
        """The members behind the delay: what was asked for, and what adaptive depth is compared with."""
        depths: dict[str, int | None] = {self._name: self._plan.depth}
        if self._plan.drafter != "none" and self._plan.depth is None:
            depths.update({f"depth {depth}": depth for depth in FIXED_DEPTHS})
        return depths

    async def _open(self, options: FleetOptions, delay: float, stack: AsyncExitStack) -> _Site:
        legs = RelayedLegs(lambda leg, stages: Shape(delay) if is_between_machines(leg, stages) else None)
        fleet = await stack.enter_async_context(
            open_fleet(options, on_progress=self._setting.note, legs=legs)
        )
        side = FleetSide(fleet, self._subject, sessions=self._plan.sessions, max_tokens=MAX_TOKENS)
        return _Site(fleet, side)

    def _member(self, site: _Site, depth: int | None) -> Measure:
        async def measure(pair: int) -> float:
            site.fleet.speculation.depth = depth
            site.forget()
            prompts = turned(self._prompts, pair * PROMPTS_A_PAIR)
            replies = await site.side.replies(prompts, self._effort.seconds)
            return decode_rate(replies, self._plan.sessions)

        return measure

    def _against_bound(self, near: _Site, measure_near: Measure, far: _Site, measure_far: Measure) -> Measure:
        """Both members of a pair, one after the other, and the bound that follows from them."""

        async def measure(pair: int) -> float:
            if pair % 2:
                rate = await measure_far(pair)
                await measure_near(pair)
            else:
                await measure_near(pair)
                rate = await measure_far(pair)
            try:
                self._bounds.append(self._bound(near, far))
            except ValueError as error:
                raise FleetchatError(f"{self._name}: {error}; give it more time") from error
            return rate

        return measure

    def _bound(self, near: _Site, far: _Site) -> float:
        rows = [one.rows for one in rounds_of(far.batches)]
        return bound(
            sessions=self._plan.sessions,
            emitted=emitted_a_round(far.answers),
            delay=self._delay,
            legs=2,
            costs=costs_at(rounds_of(near.batches), rows),
        )

    def _rows(self, measured: dict[str, list[float]]) -> list[Row]:
        asked = measured.pop(self._name)
        rows = [paired_row(f"{self._name}/bound", "tokens/s", asked, self._bounds)]
        if measured:
            best = fastest(measured)
            self.notes.append(f"{self._name}: the best fixed depth is {best.removeprefix('depth ')}")
            rows.append(paired_row(f"{self._name}/best-fixed", "tokens/s", asked, measured[best]))
        return rows

    def _note_pair(self, pair: int) -> None:
        self._setting.note(f"{self._name}, pair {pair + 1} of {self._effort.pairs}")

    def _note_network(self, far: _Site) -> None:
        snapshot = far.fleet.snapshot()
        legs = [*(stage.network_ms.p50 for stage in snapshot.stages), snapshot.return_network_ms.p50]
        shown = ", ".join(f"{leg:.1f}" for leg in legs)
        self.notes.append(f"{self._name}: one way on the legs, by ping, {shown} ms; bound {self._spread()}")

    def _spread(self) -> str:
        return f"{median(self._bounds):.1f} tokens/s ({min(self._bounds):.1f} to {max(self._bounds):.1f})"


def _report(
    setting: Setting, subject: Subject, asked: WanPlan, rows: Sequence[Row], notes: Sequence[str]
) -> Report:
    return Report(
        title="conversations on two stages that are far from each other",
        setup=(
            f"{subject.manifest.model}, {setting.precision}, engine {asked.plan.kv}, one thread a stage, "
            f"stages on cores {','.join(map(str, setting.cores)) or 'unpinned'}; relays delay the leg "
            "between the stages and the return leg, both directions; T = 0, "
            f"workload {asked.plan.workload}, at most {MAX_TOKENS} tokens a reply, "
            f"{setting.effort.seconds:g} s a member"
        ),
        formula=(
            "bound: min(S E / (2 d + C), E / B); S sessions, E tokens a round in that run, C traversal and B "
            "slowest stage for one session, both measured without delay beside it"
        ),
        ceiling="1: every session is always on its way, or the slowest stage is never idle",
        rows=tuple(rows),
        notes=tuple(notes),
    )
