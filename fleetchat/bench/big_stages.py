"""A model that no machine here holds: its stages made, cut, loaded, run and removed, one at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from fleetchat.bench.big_plan import BigPlan
from fleetchat.bench.pairs import Row
from fleetchat.bench.peak import Peak, watched
from fleetchat.bench.report import Report, row_line
from fleetchat.bench.setting import Setting
from fleetchat.bench.synthetic import write_synthetic
from fleetchat.child import child_environment, own_process_group
from fleetchat.errors import BuildError
from fleetchat.fleet.options import available_cores

PROMPT = 200  # tokens
STEPS = 8  # tokens decoded behind it
BYTES_A_VALUE = 2  # of a hidden row on the wire: f16
LEG_SECONDS = 0.0005  # assumed: one way between two machines of a local network, system included
LEG_BYTES = 1e9 / 8  # assumed: bytes a second of a gigabit network
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What one stage took, in seconds and bytes."""

    shard: int
    make: float
    cut: float
    cut_memory: int
    load: float
    memory: int
    prefill: float
    decode: float
    apart: float = 0.0  # from its layers in the whole graph, largest difference


async def measure_stages(setting: Setting, plan: BigPlan) -> Report:
    """Rows of each stage, and of the chain that they would make. Raises FleetchatError."""
    measured: dict[int, StageTimes] = {}
    entering: Path | None = None
    for index in plan.measured_stages:
        leaving = plan.folder / f"rows-{index}.npz"
        measured[index] = await _measure_stage(setting, plan, index, entering, leaving)
        entering = leaving
        for row in stage_rows(plan.name, index, measured[index]):
            setting.note(row_line(row))
    rows = [row for index, times in measured.items() for row in stage_rows(plan.name, index, times)]
    rows += estimated_rows(plan, [measured[plan.stands_for(index)] for index in range(plan.stages)])
    threads = len(setting.cores) or available_cores()
    return Report(
        title=f"{plan.shape.name} with random INT4 weights, {plan.stages} stages one at a time",
        setup=(
            f"{setting.precision}, masked, {threads} threads; each stage gets what the one measured before "
            f"it put out for a prompt of {PROMPT} tokens and {STEPS} tokens behind it"
        ),
        formula=(
            "build.memory and memory: anonymous memory against the shard; check: the stage against the same "
            "layers in the graph that it was cut from; decode: median ms of a token; "
            "chain: an ESTIMATE, not measured: the stages' times, and a leg between machines for each of "
            f"them and one back, {1000 * LEG_SECONDS:g} ms and 1 Gbit/s; decode.1 is one conversation, "
            "decode.full as many as keep all stages busy with one token each"
        ),
        ceiling="decode.full: one token in the time of the slowest stage",
        rows=tuple(rows),
        notes=(
            *_alike_notes(plan),
            "the estimate assumes a machine like this one for each stage, with nothing else running on it",
        ),
    )


def stage_rows(name: str, index: int, times: StageTimes) -> list[Row]:
    """What is told of one stage (pure)."""
    begin, shard = f"big.{name}.stage.{index}", times.shard / GIGABYTE
    rows = [
        Row(f"{begin}.shard", shard, "GB"),
        Row(f"{begin}.generate", times.make, "s"),
        Row(f"{begin}.build", times.cut, "s"),
        Row(f"{begin}.load", times.load, "s"),
        Row(f"{begin}.prefill.{PROMPT}", times.prefill, "s"),
        Row(f"{begin}.decode", 1000 * times.decode, "ms"),
        Row(f"{begin}.check", times.apart, "largest difference"),
    ]
    for part, used in (("build.memory", times.cut_memory), ("memory", times.memory)):
        if used:
            rows.append(Row(f"{begin}.{part}", used / GIGABYTE, "GB", shard, used / times.shard))
    return rows


def estimated_rows(plan: BigPlan, stages: list[StageTimes]) -> list[Row]:
    """The chain's speed on machines like this one, a stage each (pure)."""
    row_bytes = plan.shape.hidden * BYTES_A_VALUE
    legs = len(stages) + 1
    between = len(stages) - 1  # legs that carry hidden rows
    one = sum(times.decode for times in stages) + legs * LEG_SECONDS + between * row_bytes / LEG_BYTES
    slowest = max(times.decode for times in stages)
    first = sum(times.prefill for times in stages) + legs * LEG_SECONDS
    first += between * PROMPT * row_bytes / LEG_BYTES
    begin = f"big.{plan.name}.chain"
    return [
        Row(f"{begin}.ttft.{PROMPT}", first, "s (estimate)"),
        Row(f"{begin}.decode.1", 1 / one, "tokens/s (estimate)"),
        Row(f"{begin}.decode.full", 1 / slowest, "tokens/s (estimate)"),
    ]


def _alike_notes(plan: BigPlan) -> list[str]:
    others = [index for index in range(plan.stages) if index not in plan.measured_stages]
    if not others:
        return []
    pairs = ", ".join(f"{index} as {plan.stands_for(index)}" for index in others)
    return [f"stages of one shape are measured once (--every-stage measures all): {pairs}"]


async def _measure_stage(
    setting: Setting, plan: BigPlan, index: int, entering: Path | None, leaving: Path
) -> StageTimes:
    """Everything of one stage; nothing of it but its output stays."""
    first, last = plan.ranges[index]
    label = f"stage {index + 1} of {plan.stages}"
    made, cut = plan.folder / "made", plan.folder / "cut"
    for folder in (made, cut):
        shutil.rmtree(folder, ignore_errors=True)
    cut.mkdir(parents=True)
    started = time.perf_counter()
    setting.note(f"{label}: making up layers {first} to {last}")
    whole = await trio.to_thread.run_sync(
        partial(write_synthetic, made, plan.shape, distinct_layers=range(first, last + 1))
    )
    seconds = time.perf_counter() - started
    peaks: dict[str, Peak] = {}
    said = await _in_child(
        setting,
        label,
        {
            "whole": str(whole),
            "folder": str(cut),
            "ranges": plan.ranges,
            "index": index,
            "precision": setting.precision,
            "threads": len(setting.cores) or available_cores(),
            "entering": str(entering) if entering else None,
            "leaving": str(leaving),
            "prompt": PROMPT,
            "steps": STEPS,
        },
        peaks,
    )
    size = (cut / f"stage-{index:02}.bin").stat().st_size
    for folder in (made, cut):
        shutil.rmtree(folder, ignore_errors=True)
    if said["apart"] > 0:
        raise BuildError(f"{label} differs from the whole model by {said['apart']:.3g}")
    cutting = peaks.get("cutting", Peak()).most
    return StageTimes(
        size,
        seconds,
        said["cut_s"],
        cutting,
        said["load_s"],
        int(said["loaded_bytes"]),
        said["prefill_s"],
        said["decode_s"],
        said["apart"],
    )


async def _in_child(
    setting: Setting, label: str, order: dict[str, Any], peaks: dict[str, Peak]
) -> dict[str, float]:
    """Carry out an order in a process of its own; the most memory of each step. Raises BuildError."""
    options: dict[str, Any] = {**own_process_group(), "env": child_environment()}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", "fleetchat.bench.big_stage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **options,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said: dict[str, Any] = {}
    total = Peak(process.pid)
    try:
        async with watched(total):
            await process.stdin.send_all(json.dumps(order).encode() + b"\n")
            received, step = b"", ""
            async for chunk in process.stdout:
                *lines, received = (received + chunk).split(b"\n")
                for line in filter(None, lines):
                    said = json.loads(line)
                    if step:
                        peaks[step] = Peak(process.pid, total.most)
                    step, total.most = str(said.get("step", "")), 0
                    if step:
                        setting.note(f"{label}: {step}")
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
    if "error" in said or "decode_s" not in said:
        raise BuildError(f"{label}: {said.get('error', 'its process ended; memory may have run out')}")
    return said
