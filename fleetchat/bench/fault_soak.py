"""Conversations while peers are killed and stopped: every reply is compared with an undisturbed run."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import trio

from fleetchat.bench.faults import check_faults, inject, schedule
from fleetchat.bench.fleet_side import GREEDY
from fleetchat.bench.memory import anonymous
from fleetchat.bench.pairs import Row
from fleetchat.bench.report import Report
from fleetchat.bench.scale import Plan
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.peers import started_peers
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.speculation import open_speculation
from fleetchat.fleet.telemetry import Answer

MAX_TOKENS = 64  # a reply
PROMPTS_A_SESSION = 3
MEMORY_INTERVAL = 5.0  # seconds

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """How long, and how many faults in that time; `seed` says which and when."""

    seconds: float
    faults: int = 0
    seed: int = 0


@dataclass(slots=True)
class Soaked:
    """What happened. `memory` are bytes of this process that no file stands behind, one every 5 s."""

    answers: list[Answer] = field(default_factory=list)
    wrong: int = 0
    failed: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def check_soak(plan: SoakPlan) -> None:
    """Raise InputError for what cannot be done."""
    if plan.seconds <= 0:
        raise InputError(f"--soak takes a number of seconds above 0, not {plan.seconds:g}")
    if plan.faults < 0:
        raise InputError(f"--faults must be 0 or more, not {plan.faults}")
    if plan.faults:
        check_faults()


async def measure_soak(setting: Setting, plan: Plan, soak: SoakPlan) -> Report:
    """Rows `soak.…`. Ids are compared with an undisturbed run in `exact`. Raises FleetchatError."""
    check_soak(soak)
    subject = await prepare(replace(setting, precision="exact"), plan.stages)
    options = replace(
        subject.fleet_options(replace(setting, precision="exact")),
        kv=plan.kv,
        drafter=plan.drafter,
        draft_model=plan.draft_model,
        draft_depth=plan.depth,
    )
    prompts = subject.workload_ids(plan.workload)[: plan.sessions * PROMPTS_A_SESSION]
    soaked, fleet = await _soak(setting, options, subject, plan.sessions, prompts, soak)
    return _report(plan, soak, soaked, fleet)


async def _soak(
    setting: Setting,
    options: FleetOptions,
    subject: Subject,
    sessions: int,
    prompts: Sequence[Prompt],
    soak: SoakPlan,
) -> tuple[Soaked, Fleet]:
    key, soaked = secrets.token_bytes(32), Soaked()
    faults = schedule(soak.seed, stages=len(options.peers), faults=soak.faults, seconds=soak.seconds)
    for fault in faults:
        setting.note(f"planned: {fault}")
    speculation = await open_speculation(options)
    async with (
        started_peers(options, key, setting.note) as peers,
        keep_fleet(options, key, peers, speculation, on_progress=setting.note) as fleet,
    ):
        fleet.on_trouble = setting.note
        known = {prompt: (await _ask(fleet, subject, prompt)).token_ids for prompt in prompts}
        setting.note(f"{len(known)} replies of the undisturbed chain are known; soaking begins")
        over = trio.Event()
        async with trio.open_nursery() as watching:
            watching.start_soon(_watch_memory, soaked)
            async with trio.open_nursery() as nursery:
                for number in range(sessions):
                    own = prompts[number::sessions] or prompts[:1]
                    nursery.start_soon(_converse, fleet, subject, own, known, soaked, over)
                deadline = trio.current_time() + soak.seconds
                await inject(faults, fleet, peers, setting.note)
                await trio.sleep_until(deadline)
                over.set()
            watching.cancel_scope.cancel()
    return soaked, fleet


async def _converse(
    fleet: Fleet,
    subject: Subject,
    prompts: Sequence[Prompt],
    known: dict[Prompt, tuple[int, ...]],
    soaked: Soaked,
    over: trio.Event,
) -> None:
    number = 0
    while not over.is_set() and fleet.failure is None:
        prompt = prompts[number % len(prompts)]
        number += 1
        answer = await _ask(fleet, subject, prompt)
        soaked.answers.append(answer)
        if answer.error is not None:
            soaked.failed.append(answer.error[0])
        elif answer.token_ids != known[prompt]:
            soaked.wrong += 1


async def _ask(fleet: Fleet, subject: Subject, prompt: Prompt) -> Answer:
    session = fleet.new_session()
    request = GenerationRequest(prompt, GREEDY, 0, MAX_TOKENS, subject.stop_ids)
    try:
        return await fleet.generate(
            session, request, subject.chat_format.decoder(), on_text=lambda text: None
        )
    finally:
        with trio.CancelScope(shield=True):
            await fleet.close_session(session)


async def _watch_memory(soaked: Soaked) -> None:
    while sys.platform == "linux":
        soaked.memory.append(anonymous(os.getpid()))
        await trio.sleep(MEMORY_INTERVAL)


def _report(plan: Plan, soak: SoakPlan, soaked: Soaked, fleet: Fleet) -> Report:
    rows = [
        Row("soak.replies", len(soaked.answers), "replies"),
        Row("soak.wrong", soaked.wrong, "replies"),
        Row("soak.failed", len(soaked.failed), "replies"),
        Row("soak.recoveries", len(fleet.recoveries), "faults"),
    ]
    for cause in sorted({recovery.loss.cause for recovery in fleet.recoveries}):
        losses = [recovery.loss for recovery in fleet.recoveries if recovery.loss.cause is cause]
        longest = max(loss.noticed - loss.began for loss in losses)
        rows.append(Row(f"soak.noticed.{cause}", 1000 * longest, "ms"))
    resumed = [entry["resumed_ms"] for answer in soaked.answers for entry in answer.recoveries]
    if numbers := [value for value in resumed if isinstance(value, float)]:
        rows.append(Row("soak.resumed", max(numbers), "ms"))
    if len(soaked.memory) > 3:
        settled, last = soaked.memory[len(soaked.memory) // 3], soaked.memory[-1]
        rows.append(Row("soak.memory", last / 1e6, "MB", settled / 1e6, last / settled))
    return Report(
        title=f"{plan.sessions} conversations on {plan.stages} stages for {soak.seconds:.0f} s",
        setup=(
            f"exact, {plan.kv}, drafter {plan.drafter}, T = 0, at most {MAX_TOKENS} tokens a reply; "
            f"{soak.faults} faults, seed {soak.seed}"
        ),
        formula=(
            "wrong: ids that differ from the undisturbed run's; noticed, resumed: the longest time from the "
            "first sign of a fault until it was named, until a reply emitted again; memory: this process's "
            "own, at the end and after a third"
        ),
        ceiling="",
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(soaked.failed)),
    )
