"""A chain of a made-up model on this machine: built, loaded, asked, killed, beside the uncut model."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from fleetchat.bench.baseline_side import BaselineSide, open_baseline
from fleetchat.bench.big_plan import DRAFT, BigPlan, model_bytes
from fleetchat.bench.fleet_side import GREEDY, TimedDecoder, require_success
from fleetchat.bench.fusion import text_ids
from fleetchat.bench.pairs import Row, paired_row
from fleetchat.bench.peak import Peak, anonymous_now, watched
from fleetchat.bench.report import Report, row_line
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject
from fleetchat.bench.synthetic import write_synthetic
from fleetchat.bench.workloads import turned
from fleetchat.chat.conversation import ChatFormat
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.engine.fast_settings import DEFAULT, Choice
from fleetchat.errors import BuildError, FleetError
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.options import FleetOptions, available_cores
from fleetchat.fleet.peers import OwnPeers, started_peers
from fleetchat.fleet.provision import BuildProgress, build_in_process
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.shapes import SHAPES, ModelShape
from fleetchat.fleet.speculation import open_speculation
from fleetchat.fleet.telemetry import Answer
from fleetchat.peer.engines import settled
from fleetchat.peer.loading import EngineRequest

PROMPTS = (200, 2000)  # tokens
QUICK_PROMPTS = (64, 512)
WARM_UP_TOKENS = 16
REPLY = 16  # tokens
CONTEXT = 4096
SMALL = 2 << 30  # bytes of a model, below which everything is measured in more than one pair
SMALL_PAIRS = 3
RECOVERY_ROOM = 15.0  # seconds, besides loading, in which a killed stage is to be back
SPREAD = 37
GIGABYTE = 1e9


async def measure_chain(setting: Setting, plan: BigPlan) -> Report:
    """Build, load, ask with both engines, with a draft model, and after a kill. Raises FleetchatError."""
    measured = _Measured(setting, plan)
    manifest = await _made_and_built(measured)
    threads = len(setting.cores) or available_cores()
    subject = _subject(measured, manifest)
    for engine in plan.engines:
        await _measure_engine(measured, subject, engine, threads)
    return _report(measured, manifest, threads)


@dataclass
class _Measured:
    """What came out so far."""

    setting: Setting
    plan: BigPlan
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, baseline: float | None = None) -> None:
        ratio = None if baseline is None else value / baseline
        self._keep(Row(f"big.{self.plan.name}.{name}", value, unit, baseline, ratio))

    def pair(self, name: str, unit: str, values: Sequence[float], baselines: Sequence[float]) -> None:
        self._keep(paired_row(f"big.{self.plan.name}.{name}", unit, values, baselines))

    def _keep(self, row: Row) -> None:
        """Told at once as well: the whole takes minutes."""
        self.rows.append(row)
        self.setting.note(row_line(row))

    @property
    def pairs(self) -> int:
        is_small = model_bytes(self.plan.shape) < SMALL
        return SMALL_PAIRS if is_small and not self.setting.effort.quick else 1

    @property
    def prompts(self) -> tuple[int, ...]:
        return QUICK_PROMPTS if self.setting.effort.quick else PROMPTS


async def _made_and_built(measured: _Measured) -> Manifest:
    setting, plan = measured.setting, measured.plan
    for shape in dict.fromkeys((plan.shape, SHAPES[DRAFT])):
        started = time.perf_counter()
        if await make_model(plan.folder / shape.name, shape, setting.note) and shape is plan.shape:
            measured.add("generate", time.perf_counter() - started, "s")
    store = Store(plan.folder / "store")
    recipe = write_recipe(plan)
    was_built = store.find_recipe(recipe.stem, plan.stages) is not None
    peak, reported = Peak(), _Steps(setting.note)
    started = time.perf_counter()

    def note_process(process: int) -> None:
        peak.process = process

    async with watched(peak):
        manifest = await build_in_process(
            str(recipe),
            plan.stages,
            store=store,
            on_progress=reported.note,
            on_start=note_process,
        )
    seconds = time.perf_counter() - started
    sizes = [entry.bin.size for entry in manifest.stages]
    for index, size in enumerate(sizes):
        measured.add(f"shard.{index}", size / GIGABYTE, "GB")
    if was_built:
        measured.notes.append("the shards of an earlier run were used (--keep)")
        return manifest
    measured.add("build", seconds, "s")
    if peak.most:
        measured.add("build.memory", peak.most / GIGABYTE, "GB", max(sizes) / GIGABYTE)
    return manifest


async def make_model(folder: Path, shape: ModelShape, note: Callable[[str], None]) -> bool:
    """The made-up model; False when it was there."""
    if (folder / "openvino_model.bin").is_file() and (folder / "config.json").is_file():
        note(f"{shape.name} is there already")
        return False
    note(f"making up {shape.name}: {model_bytes(shape) / GIGABYTE:.1f} GB")
    await trio.to_thread.run_sync(partial(write_synthetic, folder, shape))
    return True


def write_recipe(plan: BigPlan) -> Path:
    """A recipe for the made-up model."""
    name = f"synthetic-{plan.shape.name}".replace(".", "-")
    lines = [
        f'name = "{name}"',
        f'title = "{plan.shape.name}, made up"',
        f"stages = {plan.stages}",
        f"context = {CONTEXT}",
        "[source]",
        'kind = "path"',
        f'path = "{plan.shape.name}"',
    ]
    recipe = plan.folder / f"{name}.toml"
    recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return recipe


class _Steps:
    """Tells the steps of a build, each once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._last = ""

    def note(self, progress: BuildProgress) -> None:
        if progress.step != self._last:
            self._last = progress.step
            self._note(f"building: {progress.step}")


def _subject(measured: _Measured, manifest: Manifest) -> Subject:
    store = Store(measured.plan.folder / "store")
    whole = store.whole(manifest)
    if whole is None:
        raise BuildError(f"the whole model of {manifest.recipe} is not in {store.root}")
    folder = store.folder(manifest.build_key)
    chat_format = ChatFormat.load(
        folder / manifest.tokenizer.name,
        folder / manifest.template.name,
        bos_id=manifest.bos_id,
        stop_ids=manifest.stop_ids,
    )
    return Subject(manifest, store, whole, chat_format, Choice(DEFAULT, "not measured yet"))


async def _measure_engine(measured: _Measured, subject: Subject, engine: str, threads: int) -> None:
    setting, prompts = measured.setting, _Prompts(subject)
    options = replace(subject.fleet_options(setting, context=CONTEXT), threads=threads, cores=None, kv=engine)
    setting.note(f"{engine}: loading the chain")
    async with _opened(setting, options) as opened:
        measured.add(f"load.first.{engine}", opened.seconds, "s")
        for index, entry in enumerate(subject.manifest.stages):
            if opened.grown[index]:
                shard = entry.bin.size / GIGABYTE
                measured.add(f"memory.{index}.{engine}", opened.grown[index] / GIGABYTE, "GB", shard)
        known = replace(subject, settings=await _settings(measured, subject, threads))
        cores = setting.cores or tuple(range(threads))
        async with open_baseline(setting, known, "SDPA", cores=cores, max_tokens=REPLY) as baseline:
            await baseline.reply_times(prompts.next(WARM_UP_TOKENS))  # weights are repacked at first use
            for tokens in measured.prompts:
                await _measure_prompts(measured, opened.fleet, known, baseline, prompts, tokens, engine)
                if tokens == measured.prompts[0]:
                    await _measure_recovery(measured, opened, known, prompts, engine)
    decode = f"decode.{measured.prompts[0]}.{engine}"
    plain = next(row.value for row in measured.rows if row.id.endswith(decode))
    await _measure_drafting(measured, subject, options, prompts, engine, plain)


async def _measure_prompts(
    measured: _Measured,
    fleet: Fleet,
    subject: Subject,
    baseline: BaselineSide,
    prompts: _Prompts,
    tokens: int,
    engine: str,
) -> None:
    """First token and the tokens behind it, of the chain and of the uncut model in turn."""
    first: dict[str, list[float]] = {"chain": [], "whole": []}
    rate: dict[str, list[float]] = {"chain": [], "whole": []}
    for pair in range(measured.pairs):
        measured.setting.note(f"{engine}: a prompt of {tokens:,} tokens, pair {pair + 1} of {measured.pairs}")
        prompt = prompts.next(tokens)
        timings = {
            "chain": (await _asked(fleet, subject, prompt))[0],
            "whole": await baseline.reply_times(prompt),
        }
        for side, times in timings.items():
            first[side].append(times[0])
            rate[side].append(_rate(times))
    measured.pair(f"ttft.{tokens}.{engine}", "s", first["chain"], first["whole"])
    measured.pair(f"decode.{tokens}.{engine}", "tokens/s", rate["chain"], rate["whole"])


async def _measure_drafting(
    measured: _Measured,
    subject: Subject,
    options: FleetOptions,
    prompts: _Prompts,
    engine: str,
    plain: float,
) -> None:
    """The same with a draft model."""
    setting, plan = measured.setting, measured.plan
    setting.note(f"{engine}: loading again, with a draft model")
    drafting = replace(options, drafter="ngram+model", draft_model=plan.folder / DRAFT)
    async with _opened(setting, drafting) as opened:
        measured.add(f"load.{engine}", opened.seconds, "s")
        times, answer = await _asked(opened.fleet, subject, prompts.next(measured.prompts[0]))
        measured.add(f"draft.{engine}", _rate(times), "tokens/s", plain)
        said = answer.speculation
        measured.notes.append(
            f"{engine}: {said.drafted} tokens were drafted by {DRAFT}, {said.accepted} accepted; two made-up "
            f"models have little in common but their loops. The reply: {answer.text[:60]!r}"
        )


async def _measure_recovery(
    measured: _Measured, opened: _Opened, subject: Subject, prompts: _Prompts, engine: str
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

    def __init__(self, subject: Subject) -> None:
        self._ids = text_ids(subject, max(PROMPTS))
        self._used = 0

    def next(self, tokens: int) -> list[int]:
        self._used += 1
        return turned(self._ids, self._used * SPREAD)[:tokens]


def _rate(times: Sequence[float]) -> float:
    """Tokens a second behind the first one. Raises FleetError for a reply of one token."""
    if len(times) < 2:
        raise FleetError("a reply ended with its first token: there is no speed to measure")
    return (len(times) - 1) / (times[-1] - times[0])


async def _settings(measured: _Measured, subject: Subject, threads: int) -> Choice:
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


def _report(measured: _Measured, manifest: Manifest, threads: int) -> Report:
    plan = measured.plan
    layers = ", ".join(f"{entry.first_layer}–{entry.last_layer}" for entry in manifest.stages)
    return Report(
        title=f"{plan.shape.name} with random INT4 weights in {plan.stages} stages (layers {layers})",
        setup=(
            f"{measured.setting.precision}, {threads} threads a stage, all on the same cores, used by one "
            f"conversation; the whole model is LLMPipeline (SDPA) with {threads} threads; T = 0, replies of "
            f"{REPLY} tokens, pairs of one reply each"
        ),
        formula=(
            "ttft: seconds to the first token; decode: tokens behind it a second; memory: anonymous memory "
            "that a peer takes until it is ready, against its shard; build.memory: the most that the build "
            "takes, against the largest shard; recovery: the longest gap of a reply whose last stage was "
            "killed, against a load and 15 s; draft: against no drafts"
        ),
        ceiling="1 for ttft and decode: the same kernels run on the same cores",
        rows=tuple(measured.rows),
        notes=tuple(measured.notes),
    )
