"""`bench parity`: a chain over TCP against openvino_genai on the same model, core and precision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol

from fleetchat.bench.baseline_side import open_baseline
from fleetchat.bench.fleet_side import FleetSide
from fleetchat.bench.memory import measure_memory
from fleetchat.bench.pairs import Measure, Row, alternate, fastest, paired_row
from fleetchat.bench.replies import ReplyTime, decode_rate
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.top1 import measure_top1
from fleetchat.bench.workloads import turned
from fleetchat.fleet.coordinator import open_fleet

MAX_TOKENS = 256
WORKLOAD = "chat"
STAGES = (1, 2)
BACKENDS = ("SDPA", "PA")
PROMPTS_A_PAIR = 5  # the next pair begins so many prompts later


class Side(Protocol):
    """Either side of a pair."""

    async def replies(self, prompts: Sequence[tuple[int, ...]], seconds: float) -> list[ReplyTime]: ...


async def measure_parity(setting: Setting) -> Report:
    """Rows `parity.1stage`, `parity.2stages`, `parity.top1` and `memory.peer`. Raises FleetchatError."""
    subjects = [await prepare(setting, stages) for stages in STAGES]
    async with AsyncExitStack() as stack:
        sides: dict[str, Side] = {}
        for subject in subjects:
            options = subject.fleet_options(setting)
            fleet = await stack.enter_async_context(open_fleet(options, on_progress=setting.note))
            name = f"{len(subject.manifest.stages)} stages"
            sides[name] = FleetSide(fleet, subject, sessions=1, max_tokens=MAX_TOKENS)
        for backend in BACKENDS:
            baseline = open_baseline(
                setting, subjects[0], backend, cores=setting.cores[:1], max_tokens=MAX_TOKENS
            )
            sides[backend] = await stack.enter_async_context(baseline)
        measured = await measure_sides(setting, sides, subjects[0].workload_ids(WORKLOAD))
    top1, explained = measure_top1(setting, subjects[-1])
    memory, memory_notes = await measure_memory(setting, subjects[-1])
    report = _report(setting, subjects, measured)
    return replace(
        report,
        rows=(*report.rows, top1, *memory),
        notes=(*report.notes, explained, *memory_notes),
    )


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
        await side.replies(prompts, min(1.0, effort.seconds))
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
        notes=(f"the baseline is {best}; the other backend reached {other.ratio:.3f} of it",),
    )
