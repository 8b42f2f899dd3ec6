"""A chain of a made-up model on this machine: built, loaded, asked, killed, beside the uncut model."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import trio

from fleetchat.bench.baseline_side import BaselineSide, open_baseline
from fleetchat.bench.big_build import CONTEXT, GIGABYTE, Measured, made_and_built
from fleetchat.bench.big_plan import DRAFT, BigPlan
from fleetchat.bench.fleet_side import GREEDY, TimedDecoder, require_success
from fleetchat.bench.fusion import text_ids
from fleetchat.bench.peak import Peak, anonymous_now, watched
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, chat_format_of
from fleetchat.bench.workloads import turned
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.engine.fast_settings import DEFAULT, Choice
from fleetchat.errors import BuildError, FleetError
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.options import FleetOptions, available_cores
from fleetchat.fleet.peers import OwnPeers, started_peers
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.speculation import open_speculation
from fleetchat.fleet.telemetry import Answer
from fleetchat.peer.engines import settled
from fleetchat.peer.loading import EngineRequest

WARM_UP_TOKENS = 16
REPLY = 32  # tokens
RECOVERY_ROOM = 15.0  # seconds, besides loading, in which a killed stage is to be back
SPREAD = 37


async def measure_chain(setting: Setting, plan: BigPlan) -> Report:
    """Build, load, ask with both engines, with a draft model, and after a kill. Raises FleetchatError."""
    measured = Measured(setting, plan)
    manifest = await made_and_built(measured)
    threads = len(setting.cores) or available_cores()
    subject = _subject(measured, manifest)
    for engine in plan.engines:
        await _measure_engine(measured, subject, engine, threads)
    return _report(measured, manifest, threads)


def _subject(measured: Measured, manifest: Manifest) -> Subject:
    store = Store(measured.plan.folder / "store")
    whole = store.whole(manifest)
    if whole is None:
        raise BuildError(f"the whole model of {manifest.recipe} is not in {store.root}")
    return Subject(
        manifest, store, whole, chat_format_of(store, manifest), Choice(DEFAULT, "not measured yet")
    )


async def _measure_engine(measured: Measured, subject: Subject, engine: str, threads: int) -> None:
    setting, prompts = measured.setting, _Prompts(subject, max(measured.prompts))
    options = replace(subject.fleet_options(setting, context=CONTEXT), threads=threads, cores=None, kv=engine)
    setting.note(f"{engine}: loading the chain")
    async with _opened(setting, options) as opened:
        measured.add(f"load.{engine}", opened.seconds, "s")
        for index, entry in enumerate(subject.manifest.stages):
            if opened.grown[index]:
                shard = entry.bin.size / GIGABYTE
                measured.add(f"memory.{index}.{engine}", opened.grown[index] / GIGABYTE, "GB", shard)
        known = replace(subject, settings=await _settings(measured, subject, threads))
        cores = setting.cores or tuple(range(threads))
        async with open_baseline(setting, known, "SDPA", cores=cores, max_tokens=REPLY) as baseline:
            await baseline.reply_times(prompts.next(WARM_UP_TOKENS))  # weights are repacked at first use
            for tokens in measured.prompts:
                await _measure_prompts(measured, opened, known, baseline, prompts, tokens, engine)
                if tokens == measured.prompts[0]:
                    await _measure_recovery(measured, opened, known, prompts, engine)
        if measured.plan.drafter != "none":
            await _measure_drafting(measured, opened.fleet, subject, options, prompts)


async def _measure_prompts(
    measured: Measured,
    opened: _Opened,
    subject: Subject,
    baseline: BaselineSide,
    prompts: _Prompts,
    tokens: int,
    engine: str,
) -> None:
    """First token and the tokens behind it, of the chain and of the uncut model in turn; and their memory."""
    first: dict[str, list[float]] = {"chain": [], "whole": []}
    rate: dict[str, list[float]] = {"chain": [], "whole": []}
    pairs = measured.pairs(tokens)
    peaks = [Peak(process) for process in opened.processes]
    before = [anonymous_now(process) for process in opened.processes]
    async with AsyncExitStack() as watching:
        for peak in peaks:
            await watching.enter_async_context(watched(peak))
        for pair in range(pairs):
            measured.setting.note(f"{engine}: a prompt of {tokens:,} tokens, pair {pair + 1} of {pairs}")
            prompt = prompts.next(tokens)
            timings = {
                "chain": (await _asked(opened.fleet, subject, prompt))[0],
                "whole": await baseline.reply_times(prompt),
            }
            for side, times in timings.items():
                first[side].append(times[0])
                rate[side].append(_rate(times))
    measured.pair(f"ttft.{tokens}.{engine}", "s", first["chain"], first["whole"])
    measured.pair(f"decode.{tokens}.{engine}", "tokens/s", rate["chain"], rate["whole"])
    if all(before):
        taken = max(peak.most - was for peak, was in zip(peaks, before, strict=True))
        kept = max(anonymous_now(peak.process) - was for peak, was in zip(peaks, before, strict=True))
        measured.add(f"activations.{tokens}.{engine}", taken / GIGABYTE, "GB")
        measured.add(f"kept.{tokens}.{engine}", kept / GIGABYTE, "GB")


async def _measure_drafting(
    measured: Measured, fleet: Fleet, subject: Subject, options: FleetOptions, prompts: _Prompts
) -> None:
    """The same chain with a draft model before it, against itself without."""
    setting, plan, engine, tokens = measured.setting, measured.plan, options.kv, measured.prompts[0]
    setting.note(f"{engine}: loading the draft model {DRAFT}")
    started = time.perf_counter()
    asked = replace(options, drafter=plan.drafter, draft_model=plan.folder / DRAFT)
    drafter = (await open_speculation(asked)).drafter
    measured.add(f"load.draft.{engine}", time.perf_counter() - started, "s")
    rates: dict[Drafter, list[float]] = {drafter: [], fleet.speculation.drafter: []}
    pairs = measured.pairs(tokens)
    for pair in range(pairs):
        setting.note(f"{engine}: with drafts and without, pair {pair + 1} of {pairs}")
        prompt = prompts.next(tokens)
        for used, rate in rates.items():
            fleet.speculation.drafter = used
            times, answer = await _asked(fleet, subject, prompt)
            rate.append(_rate(times))
            if used is drafter:
                measured.notes.append(_drafted(engine, answer))
                setting.note(measured.notes[-1])
    measured.pair(f"draft.{engine}", "tokens/s", *rates.values())


def _drafted(engine: str, answer: Answer) -> str:
    said = answer.speculation
    return (
        f"{engine}: {said.drafted} tokens were drafted by {DRAFT}, {said.accepted} accepted (two made-up "
        f"models have little in common but their loops): {answer.text[:40]!r}"
    )


async def _measure_recovery(
    measured: Measured, opened: _Opened, subject: Subject, prompts: _Prompts, engine: str
) -> None:
    """A stage is killed in the midst of a reply; it is to be back within a load and a bit."""
    measured.setting.note(f"{engine}: a stage is killed in the midst of a reply")
    gap = await _recovered(opened, subject, prompts.next(measured.prompts[0]))
    measured.add(f"recovery.{engine}", gap, "s", opened.seconds + RECOVERY_ROOM)


@dataclass(frozen=True)
class _Opened:
    """`seconds` from the first OPEN until everything was ready; `grown` is what each stage took for it."""

    fleet: Fleet
    peers: OwnPeers
    seconds: float
    grown: tuple[int, ...]

    @property
    def processes(self) -> list[int]:
        """Of the stages, in order, those of now."""
        return [self.peers.process(index).pid for index in range(len(self.grown))]


@asynccontextmanager
async def _opened(setting: Setting, options: FleetOptions) -> AsyncIterator[_Opened]:
    key = secrets.token_bytes(32)
    speculation = await open_speculation(options)
    async with started_peers(options, key, setting.note) as peers:
        processes = [peers.process(index).pid for index in range(len(options.peers))]
        before = [anonymous_now(process) for process in processes]
        started = time.perf_counter()
        async with keep_fleet(options, key, peers, speculation, on_progress=setting.note) as fleet:
            seconds = time.perf_counter() - started
            grown = (anonymous_now(one) - was for one, was in zip(processes, before, strict=True))
            yield _Opened(fleet, peers, seconds, tuple(grown))


async def _asked(fleet: Fleet, subject: Subject, prompt: Sequence[int]) -> tuple[list[float], Answer]:
    """One reply in a session of its own: seconds from the question to each token."""
    session, decoder = fleet.new_session(), TimedDecoder(subject.chat_format.decoder())
    request = GenerationRequest(tuple(prompt), GREEDY, 0, REPLY, frozenset())
    started = time.perf_counter()
    answer = await fleet.generate(session, request, decoder, on_text=lambda text: None)
    require_success(answer)
    await fleet.close_session(session)
    return [moment - started for moment in decoder.times], answer


async def _recovered(opened: _Opened, subject: Subject, prompt: Sequence[int]) -> float:
    """Kill the last stage when a reply has begun; the longest gap between two of its tokens."""
    fleet, session = opened.fleet, opened.fleet.new_session()
    decoder = TimedDecoder(subject.chat_format.decoder())
    request = GenerationRequest(tuple(prompt), GREEDY, 0, REPLY, frozenset())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_kill_at, opened, decoder)
        answer = await fleet.generate(session, request, decoder, on_text=lambda text: None)
        nursery.cancel_scope.cancel()
    require_success(answer)
    if len(fleet.recoveries) != 1:
        raise FleetError(
            f"a stage was killed once, and the chain was brought back {len(fleet.recoveries)} times"
        )
    return max(after - before for before, after in zip(decoder.times, decoder.times[1:], strict=False))


async def _kill_at(opened: _Opened, decoder: TimedDecoder) -> None:
    while len(decoder.times) < REPLY // 4:  # noqa: ASYNC110 (a list that grows, no event)
        await trio.sleep(0.002)
    opened.peers.process(len(opened.fleet.chain.stages) - 1).kill()


class _Prompts:
    """Plain English that begins elsewhere every time."""

    def __init__(self, subject: Subject, longest: int) -> None:
        self._ids = text_ids(subject, longest)
        self._used = 0

    def next(self, tokens: int) -> list[int]:
        self._used += 1
        return turned(self._ids, self._used * SPREAD)[:tokens]


def _rate(times: Sequence[float]) -> float:
    """Tokens a second behind the first one. Raises FleetError for a reply of one token."""
    if len(times) < 2:
        raise FleetError("a reply ended with its first token: there is no speed to measure")
    return (len(times) - 1) / (times[-1] - times[0])


async def _settings(measured: Measured, subject: Subject, threads: int) -> Choice:
    """Those that the stages have chosen: they are on record by now."""
    request = EngineRequest(
        xml=subject.store.stage_xml(subject.manifest, 0),
        manifest=subject.manifest,
        entry=subject.manifest.stages[0],
        precision=measured.setting.precision,
        engine="masked",
        device="CPU",
        threads=threads,
        cells=CONTEXT,
        on_step=measured.setting.note,
    )
    choice = await trio.to_thread.run_sync(settled, request)
    note = f"settings of both sides: {choice}"
    if note not in measured.notes:
        measured.notes.append(note)
    return choice


def _report(measured: Measured, manifest: Manifest, threads: int) -> Report:
    plan = measured.plan
    layers = ", ".join(f"{entry.first_layer}–{entry.last_layer}" for entry in manifest.stages)
    return Report(
        title=f"{plan.shape.name} with random INT4 weights in {plan.stages} stages (layers {layers})",
        setup=(
            f"{measured.setting.precision}, {threads} threads a stage, all on the same cores, used by one "
            f"conversation; the whole model is LLMPipeline (SDPA) with {threads} threads; T = 0, replies of "
            f"{REPLY} tokens, pairs of one reply each; drafter {plan.drafter}"
        ),
        formula=(
            "ttft: seconds to the first token; decode: tokens behind it a second; memory: anonymous memory "
            "that a peer takes until it is ready, against its shard; activations: the most that a stage "
            "takes on top of that for a prompt and its reply, kept: what it holds of it afterwards; "
            "build.memory: the most that the build takes, against the largest shard; recovery: the longest "
            "gap of a reply whose last stage was killed, against a load and 15 s; draft: tokens a second "
            "behind the first one, against no drafts"
        ),
        ceiling="1 for ttft and decode: the same kernels run on the same cores",
        rows=tuple(measured.rows),
        notes=tuple(measured.notes),
    )
