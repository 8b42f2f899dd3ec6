"""`bench parity --speculation`: in `exact` no drafter, depth or temperature changes the ids."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from fleetchat.bench.pairs import Row
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.wrong_draft import write_wrong_draft
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer

STAGES = 2
TOKENS = 48  # a reply
SEED = 11
PROMPTS_A_WORKLOAD = 1
WORKLOADS = ("rewrite", "chat", "code")
DEPTHS = (1, 3, 8, None)
TEMPERATURES = (0.0, 0.8)
ENGINES = ("masked", "paged")

Prompt = tuple[int, ...]


async def measure_drafter_parity(setting: Setting) -> Report:
    """Rows `speculation.{drafter}.{engine}`: replies that differ from those without drafts, of how many."""
    exact = replace(setting, precision="exact")
    subject = await prepare(exact, STAGES)
    prompts = [ids for workload in WORKLOADS for ids in subject.workload_ids(workload)[:PROMPTS_A_WORKLOAD]]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        drafters = {
            "ngram": ("ngram", None),
            "model": ("model", subject.whole),
            "ngram+model": ("ngram+model", subject.whole),
            "wrong": ("model", write_wrong_draft(subject, Path(folder))),
        }
        for engine in ENGINES:
            options = replace(subject.fleet_options(exact), kv=engine)
            expected = await _replies(setting, subject, options, prompts)
            for name, (drafter, model) in drafters.items():
                planned = replace(options, drafter=drafter, draft_model=model)
                rows += await _compare(setting, subject, planned, prompts, expected, f"{name}.{engine}")
    return Report(
        title="replies with drafts against replies without, in exact",
        setup=(
            f"{subject.manifest.model}, {STAGES} stages, exact, {len(prompts)} prompts of at most {TOKENS} "
            f"tokens, T = 0 and 0.8, depths 1, 3, 8 and adaptive; model: the target drafts for itself"
        ),
        formula="replies whose ids differ / replies; accepted drafts / drafts",
        ceiling="0 replies may differ",
        rows=tuple(rows),
    )


async def _compare(
    setting: Setting,
    subject: Subject,
    options: FleetOptions,
    prompts: Sequence[Prompt],
    expected: dict[float, list[Answer]],
    name: str,
) -> list[Row]:
    """One drafter on one engine, at all depths."""
    differ = replies = drafted = accepted = 0
    for depth in DEPTHS:
        found = await _replies(setting, subject, replace(options, draft_depth=depth), prompts)
        for temperature in TEMPERATURES:
            for one, other in zip(found[temperature], expected[temperature], strict=True):
                differ += one.token_ids != other.token_ids
                replies += 1
                drafted += one.speculation.drafted
                accepted += one.speculation.accepted
    setting.note(f"{name}: {differ} of {replies} replies differ, {accepted} of {drafted} drafts accepted")
    return [
        Row(f"speculation.{name}.differ", differ, "replies", replies),
        Row(f"speculation.{name}.accepted", accepted, "drafts", drafted),
    ]


async def _replies(
    setting: Setting, subject: Subject, options: FleetOptions, prompts: Sequence[Prompt]
) -> dict[float, list[Answer]]:
    found: dict[float, list[Answer]] = {temperature: [] for temperature in TEMPERATURES}
    async with open_fleet(options) as fleet:
        for temperature, prompt in product(TEMPERATURES, prompts):
            found[temperature].append(await _reply(fleet, subject, prompt, temperature))
    return found


async def _reply(fleet: Fleet, subject: Subject, prompt: Prompt, temperature: float) -> Answer:
    session = fleet.new_session()
    sampling = SamplingSettings(temperature=temperature, top_p=0.95, top_k=40)
    request = GenerationRequest(prompt, sampling, SEED, TOKENS, subject.stop_ids)
    try:
        return await fleet.generate(
            session, request, subject.chat_format.decoder(), on_text=lambda text: None
        )
    finally:
        await fleet.close_session(session)
