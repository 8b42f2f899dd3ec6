"""`bench parity`: a chain over TCP against openvino_genai on the same model, core and precision."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

import trio

from fleetchat.bench.baseline_side import open_baseline
from fleetchat.bench.fleet_side import FleetSide
from fleetchat.bench.memory import measure_memory
from fleetchat.bench.opening import Opener, all_open
from fleetchat.bench.pairs import Measure, Row, alternate, fastest, paired_row
from fleetchat.bench.replies import ReplyTime, decode_rate
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.top1 import measure_top1
from fleetchat.bench.workloads import turned
from fleetchat.fleet.coordinator import open_fleet
from fleetchat.transport.tasks import open_tasks

MAX_TOKENS = 256
WORKLOAD = "chat"
STAGES = (1, 2)
BACKENDS = ("SDPA", "PA")
WARM_UP = 1.0  # seconds, or a quarter of a member
PROMPTS_A_PAIR = 5  # the next pair begins so many prompts later


class Side(Protocol):
    """Either side of a pair."""

    async def replies(self, prompts: Sequence[tuple[int, ...]], seconds: float) -> list[ReplyTime]: ...


async def measure_parity(setting: Setting) -> Report:
    """Rows `parity.1stage`, `parity.2stages`, `parity.top1` and `memory.peer`. Raises FleetchatError."""
    subjects = [await prepare(setting, stages) for stages in STAGES]
    async with all_open(_openers(setting, subjects)) as sides:
        measured = await measure_sides(setting, sides, subjects[0].workload_ids(WORKLOAD))
    rows, notes = await _measure_untimed(setting, subjects[-1])
    report = _report(setting, subjects, measured)
    return replace(report, rows=(*report.rows, *rows), notes=(*report.notes, *notes))


def _openers(setting: Setting, subjects: Sequence[Subject]) -> dict[str, Opener[Side]]:
    openers: dict[str, Opener[Side]] = {}
    for subject in subjects:
        openers[f"{len(subject.manifest.stages)} stages"] = partial(_open_chain, setting, subject)
    for backend in BACKENDS:
        openers[backend] = partial(
            open_baseline, setting, subjects[0], backend, cores=setting.cores[:1], max_tokens=MAX_TOKENS
        )
    return openers


@asynccontextmanager
async def _open_chain(setting: Setting, subject: Subject) -> AsyncIterator[Side]:
    async with open_fleet(subject.fleet_options(setting), on_progress=setting.note) as fleet:
        yield FleetSide(fleet, subject, sessions=1, max_tokens=MAX_TOKENS)


async def _measure_untimed(setting: Setting, subject: Subject) -> tuple[list[Row], list[str]]:
    """`parity.top1` and `memory.peer`, beside each other: in neither counts how long it takes."""
    rows: list[Row] = []
    notes: list[str] = []

    async def top1() -> None:
        row, explained = await trio.to_thread.run_sync(measure_top1, setting, subject)
        rows.insert(0, row)
        notes.insert(0, explained)

    async def memory() -> None:
        found, explained = await measure_memory(setting, subject)
        rows.extend(found)
        notes.extend(explained)

    async with open_tasks() as tasks:
        tasks.start_soon(top1)
        tasks.start_soon(memory)
    return rows, notes


async def measure_sides(
    setting: Setting, sides: dict[str, Side], prompts: Sequence[tuple[int, ...]]
) -> dict[str, list[float]]:
    """Decoding speed of every side, pair by pair, after one round that does not count."""
    effort = setting.effort

    def measure(side: Side) -> Measure:
        async def once(pair: int) -> float:
            return decode_rate(await side.replies(turned(prompts, pair * PROMPTS_A_PAIR), effort.seconds))

        return once

    for name, side in sides.items():
        setting.note(f"warming up: {name}")
        await side.replies(prompts, min(WARM_UP, effort.seconds / 4))
    return await alternate(
        {name: measure(side) for name, side in sides.items()},
        effort.pairs,
        lambda pair: setting.note(f"pair {pair + 1} of {effort.pairs}"),
    )


def _report(setting: Setting, subjects: Sequence[Subject], measured: dict[str, list[float]]) -> Report:
    best = fastest({backend: measured[backend] for backend in BACKENDS})
    rows: list[Row] = []
    for subject in subjects:
        stages = len(subject.manifest.stages)
        identity = f"parity.{stages}stage{'s' if stages > 1 else ''}"
        rows.append(paired_row(identity, "tokens/s", measured[f"{stages} stages"], measured[best]))
    other = paired_row("", "", measured[min(set(BACKENDS) - {best})], measured[best])
    return Report(
        title="one conversation on a chain over TCP, against openvino_genai.LLMPipeline",
        setup=(
            f"{subjects[0].manifest.model}, {setting.precision}, one thread a stage, stages on cores "
            f"{','.join(map(str, setting.cores)) or 'unpinned'}, the pipeline on the first of them; T = 0, "
            f"workload {WORKLOAD}, at most {MAX_TOKENS} tokens a reply, {setting.effort.seconds:g} s a member"
        ),
        formula="tokens after the first / seconds from the first token to the last, up to the first loop",
        ceiling="1: the same kernels run on the same core; what is lost is spent outside of them",
        rows=tuple(rows),
        notes=(
            f"the baseline is {best}; the other backend reached {other.ratio:.3f} of it",
            *([f"settings of both sides: {subjects[0].settings}"] if setting.precision == "fast" else []),
        ),
    )
