"""`bench scale`: what sessions and speculation make of a chain, against openvino_genai."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from fleetchat.bench.baseline_side import BaselineSide, open_baseline
from fleetchat.bench.fleet_side import FleetSide
from fleetchat.bench.pairs import Measure, Row, alternate, fastest, paired_row
from fleetchat.bench.replies import decode_rate
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.workloads import tokens_before_loop, turned
from fleetchat.bench.wrong_draft import write_wrong_draft
from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import open_fleet
from fleetchat.fleet.options import FleetOptions, require_draft_model

MAX_TOKENS = 256
BATCH_TOKENS = 128  # a reply of the continuous batching row: nobody can stop it at a loop
BACKENDS = ("SDPA", "PA")
CORES = "cores"  # a pipeline on every core at once
WRONG = "wrong"
PROMPTS_A_PAIR = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """Which chain is measured. `depth` None is adaptive; `draft_model` is a folder."""

    stages: int = 2
    sessions: int = 2
    drafter: str = "none"
    depth: int | None = None
    kv: str = "masked"
    workload: str = "chat"
    draft_model: Path | None = None

    @property
    def name(self) -> str:
        """The row's id without the baseline."""
        depth = "adaptive" if self.depth is None else str(self.depth)
        if self.drafter == "none":
            depth = "0"
        return f"scale.{self.stages}x{self.sessions}.{self.drafter}.{depth}.{self.kv}.{self.workload}"


def check_plan(plan: Plan) -> None:
    """Raise InputError for what cannot be measured."""
    for option, value in (("--stages", plan.stages), ("--sessions", plan.sessions)):
        if value < 1:
            raise InputError(f"{option} must be at least 1, not {value}")
    if plan.depth is not None and plan.depth < 1:
        raise InputError(f"--draft-depth must be adaptive or at least 1, not {plan.depth}")
    if plan.drafter != WRONG:
        require_draft_model(plan.drafter, plan.draft_model)


async def measure_scale(setting: Setting, plan: Plan) -> Report:
    """Rows `scale.…/llmpipeline`, `/genai-cb`, and `/none` when something drafts. Raises FleetchatError."""
    check_plan(plan)
    subject = await prepare(setting, plan.stages)
    prompts = subject.workload_ids(plan.workload)
    with tempfile.TemporaryDirectory() as folder:
        options = planned_options(setting, subject, plan, Path(folder))
        drafting = await _measure_streams(setting, subject, plan, options, prompts)
        batched = await _measure_batches(setting, subject, plan, options, prompts)
    best = fastest({backend: drafting[backend] for backend in BACKENDS})
    rows = [paired_row(f"{plan.name}/llmpipeline", "tokens/s", drafting["chain"], drafting[best])]
    rows.append(paired_row(f"{plan.name}/genai-cb", "tokens/s", batched["chain"], batched["CB"]))
    if CORES in drafting:
        rows.append(
            paired_row(f"scale.{plan.stages}cores/llmpipeline", "tokens/s", drafting[CORES], drafting[best])
        )
    if "none" in drafting:
        rows.append(paired_row(f"{plan.name}/none", "tokens/s", drafting["chain"], drafting["none"]))
    return _report(setting, subject, plan, rows, best)


def planned_options(setting: Setting, subject: Subject, plan: Plan, folder: Path) -> FleetOptions:
    """The fleet of a plan; the wrong draft model is written into `folder`."""
    wrong = plan.drafter == WRONG
    return replace(
        subject.fleet_options(setting),
        kv=plan.kv,
        drafter="model" if wrong else plan.drafter,
        draft_model=write_wrong_draft(subject, folder) if wrong else plan.draft_model,
        draft_depth=plan.depth,
    )


async def _measure_streams(
    setting: Setting,
    subject: Subject,
    plan: Plan,
    options: FleetOptions,
    prompts: Sequence[tuple[int, ...]],
) -> dict[str, list[float]]:
    """Decoding speed: all sessions of the chain together, and one user of the pipeline."""
    seconds = setting.effort.seconds

    def chain(side: FleetSide) -> Measure:
        async def measure(pair: int) -> float:
            own = turned(prompts, pair * PROMPTS_A_PAIR)
            return decode_rate(await side.replies(own, seconds), plan.sessions)

        return measure

    def pipeline(*sides: BaselineSide) -> Measure:
        async def measure(pair: int) -> float:
            rates: list[float] = []

            async def one(side: BaselineSide, number: int) -> None:
                own = turned(prompts, pair * PROMPTS_A_PAIR + number)
                rates.append(decode_rate(await side.replies(own, seconds)))

            async with trio.open_nursery() as nursery:
                for number, side in enumerate(sides):
                    nursery.start_soon(one, side, number)
            return sum(rates)

        return measure

    async with AsyncExitStack() as stack:
        members: dict[str, Measure] = {}
        fleets = {"chain": options}
        if plan.drafter != "none":
            fleets["none"] = replace(options, drafter="none", draft_model=None)
        for name, fleet_options in fleets.items():
            fleet = await stack.enter_async_context(open_fleet(fleet_options, on_progress=setting.note))
            side = FleetSide(fleet, subject, sessions=plan.sessions, max_tokens=MAX_TOKENS)
            members[name] = chain(side)

        async def load(backend: str, core: int) -> BaselineSide:
            cores = setting.cores[core : core + 1]
            baseline = open_baseline(setting, subject, backend, cores=cores, max_tokens=MAX_TOKENS)
            return await stack.enter_async_context(baseline)

        sides = {backend: await load(backend, 0) for backend in BACKENDS}
        members |= {backend: pipeline(side) for backend, side in sides.items()}
        if plan.sessions > 1 and 1 < plan.stages <= len(setting.cores):
            others = [await load(BACKENDS[0], core) for core in range(1, plan.stages)]
            members[CORES] = pipeline(sides[BACKENDS[0]], *others)
        return await _alternate(setting, members, "streams")


async def _measure_batches(
    setting: Setting,
    subject: Subject,
    plan: Plan,
    options: FleetOptions,
    prompts: Sequence[tuple[int, ...]],
) -> dict[str, list[float]]:
    """As many requests as sessions, all at once, prefill included, on the same cores."""

    def requests(batch: int) -> list[tuple[int, ...]]:
        own = turned(prompts, batch * plan.sessions)
        return [own[index % len(own)] for index in range(plan.sessions)]

    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(open_fleet(options, on_progress=setting.note))
        side = FleetSide(fleet, subject, sessions=plan.sessions, max_tokens=BATCH_TOKENS)
        cores = setting.cores[: plan.stages]
        baseline = await stack.enter_async_context(
            open_baseline(setting, subject, "CB", cores=cores, max_tokens=BATCH_TOKENS)
        )

        async def chain(pair: int) -> float:
            tokens, spent = 0, 0.0
            while spent < setting.effort.seconds:
                started = time.perf_counter()
                tokens += await _batch(side, requests(pair))
                spent += time.perf_counter() - started
            return tokens / spent

        async def batching(pair: int) -> float:
            tokens, spent = 0, 0.0
            while spent < setting.effort.seconds:
                replies, seconds = await baseline.batch(requests(pair))
                tokens += sum(tokens_before_loop(reply) for reply in replies)
                spent += seconds
            return tokens / spent

        return await _alternate(setting, {"chain": chain, "CB": batching}, "batches")


async def _batch(side: FleetSide, requests: Sequence[tuple[int, ...]]) -> int:
    """Tokens of the replies to all requests at once."""
    counted: list[int] = []

    async def one(prompt: tuple[int, ...]) -> None:
        reply = await side.reply(prompt, stop_at_loop=False)
        counted.append(reply.tokens if reply else 0)

    async with trio.open_nursery() as nursery:
        for prompt in requests:
            nursery.start_soon(one, prompt)
    return sum(counted)


async def _alternate(setting: Setting, members: dict[str, Measure], what: str) -> dict[str, list[float]]:
    for name, measure in members.items():
        setting.note(f"{what}, warming up: {name}")
        await measure(0)
    return await alternate(
        members,
        setting.effort.pairs,
        lambda pair: setting.note(f"{what}, pair {pair + 1} of {setting.effort.pairs}"),
    )


def _report(setting: Setting, subject: Subject, plan: Plan, rows: list[Row], best: str) -> Report:
    return Report(
        title=f"{plan.sessions} conversations at once on {plan.stages} stages",
        setup=(
            f"{subject.manifest.model}, {setting.precision}, one thread a stage, stages on cores "
            f"{','.join(map(str, setting.cores)) or 'unpinned'}; T = 0; at most {MAX_TOKENS} tokens a reply, "
            f"{setting.effort.seconds:g} s a member. llmpipeline: one user on the first core. genai-cb: the "
            f"same {plan.sessions} requests of at most {BATCH_TOKENS} tokens on the stages' cores"
        ),
        formula=(
            "tokens after the first / seconds from the first token to the last, up to the first loop, times "
            "the sessions; genai-cb: tokens up to the first loop / seconds of the whole batch"
        ),
        ceiling=(
            "llmpipeline without drafts: the whole model's time / the slowest stage's, as long as no two "
            "sessions share a pass"
        ),
        rows=tuple(rows),
        notes=_notes(plan, rows, best),
    )


def _notes(plan: Plan, rows: Sequence[Row], best: str) -> tuple[str, ...]:
    notes = [f"llmpipeline is the {best} backend, the faster one"]
    if any(row.id == f"scale.{plan.stages}cores/llmpipeline" for row in rows):
        notes.append(
            f"scale.{plan.stages}cores: as many pipelines at once, each with a core and a user of its own. "
            "That is all that the cores give; a chain with one session a pass and no drafts cannot pass it"
        )
    return tuple(notes)
