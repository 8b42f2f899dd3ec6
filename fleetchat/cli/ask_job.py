"""From the options of `ask` to its exit code: build, open, ask, report. Ctrl+C is answered at any time."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from fleetchat.chat.conversation import ChatFormat, Conversation, PlainText
from fleetchat.cli.ask_output import AnswerWriter, Progress
from fleetchat.cli.ask_report import Answered, document, statistics_lines
from fleetchat.cli.ask_session import Asking, Opened, ReplySettings, open_conversations
from fleetchat.cli.ask_wait import Waiting
from fleetchat.cli.build_progress import STOPPED
from fleetchat.cli.output import print_diagnostic
from fleetchat.config import Config
from fleetchat.cutter.recipe import Recipe
from fleetchat.cutter.store import Store
from fleetchat.errors import ExitCode, InputError
from fleetchat.fleet.configured import prepare_fleet, sampling_of, system_of
from fleetchat.fleet.coordinator import open_fleet
from fleetchat.fleet.options import FleetOptions, available_cores, threads_note
from fleetchat.fleet.provision import BuildProgress
from fleetchat.fleet.telemetry import FleetSnapshot
from fleetchat.transport.tasks import open_tasks

STOP_DEADLINE = 2.0  # seconds that a stopped reply may take to end, before everything is cancelled


@dataclass(frozen=True, slots=True)
class Job:
    """What `ask` was told to do."""

    config: Config
    recipe: Recipe
    plan: tuple[tuple[str, ...], ...]
    stop_ids: frozenset[int]
    raw: bool
    as_json: bool
    statistics: bool
    trace_file: Path | None
    progress: Progress


@dataclass(slots=True)
class Interruption:
    """Ctrl+C. The first one calls `stop`, if there is a reply to stop; else everything is cancelled."""

    happened: bool = False
    stop: Callable[[], None] | None = None

    async def watch(self, everything: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            await anext(signals)
            self.happened = True
            if self.stop is not None:
                self.stop()
                with trio.move_on_after(STOP_DEADLINE):
                    await anext(signals)
            everything.cancel()


@dataclass(slots=True)
class Outcome:
    """What there is to report in the end."""

    snapshot: FleetSnapshot | None = None
    answers: list[Answered] = field(default_factory=list)
    failure: Exception | None = None
    building: bool = False  # the shards are looked for, or built


def run_job(job: Job) -> ExitCode:
    """Do everything. Raises the failure that ended it, after the answers so far were reported."""
    outcome, interruption = Outcome(), Interruption()
    trio.run(_interruptible, job, outcome, interruption)
    if interruption.happened and outcome.building:
        job.progress.stop(STOPPED)
    job.progress.clear()
    _report(job, outcome)
    if interruption.happened:
        return ExitCode.INTERRUPTED
    if outcome.failure is not None:
        raise outcome.failure
    return ExitCode.DONE


def _report(job: Job, outcome: Outcome) -> None:
    if outcome.snapshot is None or not outcome.answers:
        return
    if job.as_json:
        json.dump(document(outcome.snapshot, outcome.answers), sys.stdout, indent=2)
        sys.stdout.write("\n")
        sys.stdout.flush()
    if job.statistics:
        for line in statistics_lines(outcome.snapshot, outcome.answers):
            print_diagnostic(line)


async def _interruptible(job: Job, outcome: Outcome, interruption: Interruption) -> None:
    with trio.CancelScope() as everything:
        async with open_tasks() as nursery:
            waiting = Waiting(job.progress)
            nursery.start_soon(interruption.watch, everything)
            nursery.start_soon(waiting.run)
            await _ask(job, outcome, interruption, waiting)
            nursery.cancel_scope.cancel()


async def _ask(job: Job, outcome: Outcome, interruption: Interruption, waiting: Waiting) -> None:
    outcome.building = True
    prepared = await prepare_fleet(job.config, on_build=lambda build: _show_build(job.progress, build))
    outcome.building = False
    if note := threads_note(prepared, available_cores()):
        job.progress.say(f"note: {note}")
    options = replace(prepared, trace_file=job.trace_file)
    settings, opened = _prepare(job, options)
    async with open_fleet(options, on_progress=waiting.note) as fleet, open_tasks() as nursery:
        waiting.end()
        writer = None if job.as_json else AnswerWriter()
        if writer is not None:
            nursery.start_soon(writer.run)
        fleet.on_trouble = job.progress.say
        asking = Asking(fleet, settings, job.progress, writer)
        outcome.answers = asking.answers
        interruption.stop = asking.stop
        if not interruption.happened:
            await asking.run(opened)
        outcome.snapshot, outcome.failure = fleet.snapshot(), asking.failure
        if writer is not None:
            await writer.close()


def _prepare(job: Job, options: FleetOptions) -> tuple[ReplySettings, list[Opened]]:
    """Settings and rendered first prompts. Raises InputError before any peer is started."""
    manifest, context = options.manifest, options.context
    folder = Store(options.store_root).folder(manifest.build_key)
    chat_format = ChatFormat.load(
        folder / manifest.tokenizer.name,
        folder / manifest.template.name,
        bos_id=manifest.bos_id,
        stop_ids=manifest.stop_ids,
    )
    for stop_id in job.stop_ids:
        if stop_id >= manifest.vocabulary:
            raise InputError(
                f"--stop-id {stop_id}: the ids of {manifest.model} end at {manifest.vocabulary - 1}"
            )
    system = system_of(job.config, job.recipe)

    def new_conversation() -> Conversation | PlainText:
        if job.raw:
            return PlainText(chat_format, context=context)
        return Conversation(chat_format, context=context, system=system)

    settings = ReplySettings(
        sampling=sampling_of(job.config, job.recipe.sampling),
        seed=job.config.sampling.seed,
        max_tokens=job.config.sampling.max_tokens,
        stop_ids=frozenset(manifest.stop_ids) | job.stop_ids,
        stop_strings=job.config.sampling.stop,
        context=context,
        new_decoder=chat_format.decoder,
    )
    return settings, open_conversations(job.plan, new_conversation)


def _show_build(progress: Progress, build: BuildProgress) -> None:
    progress.step(build.step, build.done, build.total)
