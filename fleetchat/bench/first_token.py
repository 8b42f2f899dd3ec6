"""`bench scale --prefill` and `--turn2`: how soon the first token of a reply comes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from fleetchat.bench.fleet_side import GREEDY, TimedDecoder, require_success
from fleetchat.bench.fusion import text_ids
from fleetchat.bench.pairs import Measure, alternate, paired_row
from fleetchat.bench.report import Report
from fleetchat.bench.scale import Plan
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.workloads import turned
from fleetchat.errors import InputError
from fleetchat.fleet.coordinator import Fleet, FleetSession, open_fleet
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.session import GenerationRequest

HISTORY = 3000  # tokens before the second turn
NEW_TOKENS = 64  # of the second turn, and of the first one that it is compared with
REPLY = 4  # tokens between the two turns
SPREAD = 37  # tokens by which the text is turned from one use to the next: no two share a beginning


async def measure_prefill(setting: Setting, plan: Plan, tokens: int) -> Report:
    """Row `prefill.<tokens>.<stages>stages`: against one stage on one core. Raises FleetchatError."""
    if tokens < 16 or plan.stages < 2:
        raise InputError("--prefill takes at least 16 tokens, and --stages at least 2")
    subjects = {stages: await prepare(setting, stages) for stages in (plan.stages, 1)}
    text = Text(subjects[1], tokens)
    async with AsyncExitStack() as stack:
        members: dict[str, Measure] = {}
        for stages, subject in subjects.items():
            options = replace(subject.fleet_options(setting, context=tokens + 64), kv=plan.kv)
            fleet = await stack.enter_async_context(open_fleet(options, on_progress=setting.note))
            members[str(stages)] = _prefilling(setting, fleet, subject, text)
        measured = await _alternate(setting, members)
    row = paired_row(
        f"prefill.{tokens}.{plan.stages}stages", "tokens/s", measured[str(plan.stages)], measured["1"]
    )
    entries = subjects[plan.stages].manifest.stages
    most = max(entry.last_layer - entry.first_layer + 1 for entry in entries)
    return Report(
        title=f"reading a prompt of {tokens:,} tokens on {plan.stages} stages, against one stage",
        setup=_setup(setting, subjects[1], plan),
        formula="tokens of the prompt / seconds to the first token",
        ceiling=f"layers in all / layers of the largest stage = {subjects[1].manifest.layers / most:.2f}",
        rows=(row,),
    )


async def measure_second_turn(setting: Setting, plan: Plan) -> Report:
    """Row `turn2.ttft`: behind a long history, against a first turn as long as what is new."""
    subject = await prepare(setting, plan.stages)
    text = Text(subject, HISTORY)
    options = second_turn_options(setting, subject, plan)
    async with open_fleet(options, on_progress=setting.note) as fleet:

        async def second(pair: int) -> float:
            session, history = fleet.new_session(), text.next()
            reply = await _ask(fleet, subject, session, history, REPLY)
            new = text.next()[:NEW_TOKENS]
            seconds = await _first_token(fleet, subject, session, [*history, *reply, *new])
            await fleet.close_session(session)
            return 1000 * seconds

        async def first(pair: int) -> float:
            session = fleet.new_session()
            seconds = await _first_token(fleet, subject, session, text.next()[:NEW_TOKENS])
            await fleet.close_session(session)
            return 1000 * seconds

        measured = await _alternate(setting, {"second": second, "first": first})
    return Report(
        title=f"the second turn behind {HISTORY:,} tokens of history",
        setup=_setup(setting, subject, plan),
        formula=f"ms to the first token of a turn with {NEW_TOKENS} new tokens / of a first turn as long",
        ceiling="1: what is held is not read again; what is above it is attention to the history",
        rows=(paired_row("turn2.ttft", "ms", measured["second"], measured["first"]),),
    )


def second_turn_options(setting: Setting, subject: Subject, plan: Plan) -> FleetOptions:
    """A context that holds the history and the turns. Raises InputError when the model's is shorter."""
    context = HISTORY + 2 * NEW_TOKENS + 2 * REPLY
    if subject.manifest.context < context:
        raise InputError(
            f"{subject.manifest.model} has a context of {subject.manifest.context:,} tokens only"
        )
    return replace(subject.fleet_options(setting, context=context), kv=plan.kv)


class Text:
    """Plain English that begins elsewhere every time: nothing of it can be taken from another session."""

    def __init__(self, subject: Subject, tokens: int) -> None:
        self._ids = text_ids(subject, tokens)
        self._used = 0

    def next(self) -> list[int]:
        self._used += 1
        return turned(self._ids, self._used * SPREAD)


def _prefilling(setting: Setting, fleet: Fleet, subject: Subject, text: Text) -> Measure:
    async def measure(pair: int) -> float:
        tokens, spent = 0, 0.0
        while spent < setting.effort.seconds:
            session, prompt = fleet.new_session(), text.next()
            spent += await _first_token(fleet, subject, session, prompt)
            tokens += len(prompt)
            await fleet.close_session(session)
        return tokens / spent

    return measure


async def _first_token(fleet: Fleet, subject: Subject, session: FleetSession, prompt: Sequence[int]) -> float:
    """Seconds to the first token of the reply."""
    decoder = TimedDecoder(subject.chat_format.decoder())
    request = GenerationRequest(tuple(prompt), GREEDY, 0, 1, frozenset())
    started = time.perf_counter()
    require_success(await fleet.generate(session, request, decoder, on_text=lambda text: None))
    return decoder.times[0] - started


async def _ask(
    fleet: Fleet, subject: Subject, session: FleetSession, prompt: Sequence[int], tokens: int
) -> tuple[int, ...]:
    """The reply, of so many tokens whatever they are."""
    request = GenerationRequest(tuple(prompt), GREEDY, 0, tokens, frozenset())
    answer = await fleet.generate(session, request, subject.chat_format.decoder(), on_text=lambda text: None)
    require_success(answer)
    return answer.token_ids


async def _alternate(setting: Setting, members: dict[str, Measure]) -> dict[str, list[float]]:
    for name, measure in members.items():
        setting.note(f"warming up: {name}")
        await measure(0)
    return await alternate(
        members,
        setting.effort.pairs,
        lambda pair: setting.note(f"pair {pair + 1} of {setting.effort.pairs}"),
    )


def _setup(setting: Setting, subject: Subject, plan: Plan) -> str:
    return (
        f"{subject.manifest.model}, {setting.precision}, {plan.kv}, one thread a stage, stages on cores "
        f"{','.join(map(str, setting.cores)) or 'unpinned'}; plain English that no two sessions share"
    )
