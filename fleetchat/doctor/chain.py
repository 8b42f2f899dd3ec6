"""One token through the fleet as it is configured: the proof that everything works together."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from fleetchat.chat.conversation import ChatFormat, Conversation
from fleetchat.doctor.devices import signal_name
from fleetchat.doctor.finding import Finding, fail, failure_of, ok
from fleetchat.doctor.logs import last_lines
from fleetchat.errors import FleetchatError, FleetError
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.options import FleetOptions, PeerSpec, available_cores, threads_per_stage
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason

NAME = "chain"
PROMPT = "Hello"
TOKEN_DEADLINE = 120.0  # seconds from the prompt to the token
DEATH_DEADLINE = 0.3  # seconds to learn that a process whose link broke is dead


@dataclass(slots=True)
class Run:
    """What happened so far; `began` is the start of the step that runs."""

    log_folder: Path
    steps: list[str] = field(default_factory=list)
    engine: str = ""  # the KV engine and why
    settings: list[str] = field(default_factory=list)  # of OpenVINO, stage by stage, and why
    processes: dict[int, trio.Process] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.steps.append(f"{step} {(now - self.began) * 1000:,.0f} ms")
        self.began = now

    def log(self, stage: int) -> Path:
        """Logs of their own: a chat that runs meanwhile keeps its."""
        return self.log_folder / f"doctor-peer-{stage}.log"


async def check_chain(
    options: FleetOptions, chat_format: ChatFormat, key: bytes, log_folder: Path
) -> Finding:
    """Start the embedded stages, open the chain, draw one token, close. `key` is the fleet's or any."""
    run = Run(log_folder)
    try:
        async with AsyncExitStack() as stack:
            try:
                answer = await _answer(options, chat_format, key, run, stack)
            except FleetchatError as error:
                return await _explained(error, run)
        run.done("closing")
    except FleetchatError as error:  # while everything was closed
        return failure_of(NAME, error, _see_log(run))
    if answer.finish_reason is FinishReason.ERROR:
        message, hint = answer.error or ("the reply failed", "")
        return fail(NAME, message, hint or _see_log(run), *_steps(run))
    local = sum(peer.address is None for peer in options.peers)
    stages = f"{len(options.peers)} stage{'' if len(options.peers) == 1 else 's'}"
    where = "on this machine" if local == len(options.peers) else f"({local} on this machine)"
    threads = threads_per_stage(options, available_cores())
    each = f", {threads} thread{'' if threads == 1 else 's'} each," if local else ""
    return ok(NAME, f"{stages} {where}{each} drew a token together", *_steps(run), run.engine, *run.settings)


async def _answer(
    options: FleetOptions, chat_format: ChatFormat, key: bytes, run: Run, stack: AsyncExitStack
) -> Answer:
    peers = await _start(options, key, run, stack)
    fleet = await stack.enter_async_context(open_fleet(replace(options, peers=peers, key=key)))
    run.done("opening the chain and loading the shards")
    run.engine = f"KV engine {fleet.options.kv}: {fleet.kv_reason}"
    run.settings = [f"stage {one.index} on {one.device}: {one.settings}" for one in fleet.snapshot().stages]
    answer = await _one_token(fleet, chat_format)
    run.done("the first token")
    return answer


async def _start(options: FleetOptions, key: bytes, run: Run, stack: AsyncExitStack) -> tuple[PeerSpec, ...]:
    threads = threads_per_stage(options, available_cores())
    started = []
    for index, peer in enumerate(options.peers):
        if peer.address is not None:
            started.append(peer)
            continue
        address, process = await stack.enter_async_context(
            embedded_peer(
                key=key,
                store_root=options.store_root,
                threads=threads,
                log_file=run.log(index),
                kv_cells=options.kv_cells,
            )
        )
        run.processes[index] = process
        started.append(PeerSpec(address, peer.name))
    if run.processes:
        run.done("starting the processes")
    return tuple(started)


async def _one_token(fleet: Fleet, chat_format: ChatFormat) -> Answer:
    request = GenerationRequest(
        token_ids=Conversation(chat_format, context=fleet.options.context).ask(PROMPT),
        sampling=SamplingSettings(),
        seed=0,
        max_tokens=1,
        stop_ids=frozenset(fleet.options.manifest.stop_ids),
    )
    with trio.move_on_after(TOKEN_DEADLINE):
        return await fleet.generate(
            fleet.new_session(), request, chat_format.decoder(), on_text=lambda text: None
        )
    raise FleetError(f"no token came within {TOKEN_DEADLINE:.0f} s")


async def _explained(error: FleetchatError, run: Run) -> Finding:
    """The failure, or what lies behind it: a stage's process that died."""
    with trio.move_on_after(DEATH_DEADLINE):
        async with trio.open_nursery() as nursery:
            for process in run.processes.values():
                nursery.start_soon(process.wait)
    dead = [(index, one.returncode) for index, one in run.processes.items() if one.returncode]
    if not dead:
        return fail(NAME, error.message, error.hint or _see_log(run), *_steps(run))
    stage, code = dead[0]
    how = signal_name(-code) if code < 0 else f"exit code {code}"
    logged = [f"its log: {line}" for line in last_lines(run.log(stage), 2)]
    return fail(NAME, f"the process of stage {stage} died: {how}", _see_log(run), *_steps(run), *logged)


def _steps(run: Run) -> tuple[str, ...]:
    return (", ".join(run.steps),) if run.steps else ()


def _see_log(run: Run) -> str:
    return f"read the logs of the stages in {run.log_folder} (`fleetchat paths --logs --tail 20` shows them)"
