"""Faults of links and peers in the middle of replies: nothing is lost, nothing doubled, and it is said.

Every token of a fake engine is known beforehand, so a lost, doubled or foreign one fails at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from fleetchat.engine.interface import StageEngine
from fleetchat.fleet.coordinator import keep_fleet
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.telemetry import Answer, FinishReason
from fleetchat.fleet.trouble import Cause
from fleetchat.ids import BatchSequence
from fleetchat.peer.queue import QueuedBatch
from fleetchat.peer.stage import StageWorker
from fleetchat.wire.frames import Forward, Result
from tests.fakes.chain import KEY, Letters, request
from tests.fakes.door import Door, flip_a_bit, swallow
from tests.fakes.drafters import RightDrafter
from tests.fakes.engine import FakeEngine, Mischief, by_position, reply
from tests.fakes.mortal import HASTY, Mortal, mortal_fleet
from tests.fakes.paged_engine import FakePagedEngine, history_reply
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio
TOKENS = 30
PROMPTS = [[number + 1] * (3 + 20 * number) for number in range(4)]


def expected(kv: str, prompt: list[int], tokens: int = TOKENS) -> list[int]:
    if kv == "paged":
        return history_reply(prompt, tokens)
    return reply(0, len(prompt), tokens, by_position)


def engine(kv: str, stage: int, stages: int, mischief: Mischief | None = None) -> StageEngine:
    if kv == "paged":
        passes = itertools.count()
        before_run = mischief.before_run if mischief else lambda number: None
        return FakePagedEngine(stage, stages, before_run=lambda slices: before_run(next(passes)))
    return FakeEngine(stage, stages, oracle=by_position, mischief=mischief)


def killed(mortal: Mortal, stage: int) -> None:
    mortal.doors[stage].cut()


def stopped(mortal: Mortal, stage: int) -> None:
    mortal.doors[stage].freeze()


def shut_down(mortal: Mortal, stage: int) -> None:
    mortal.peers.leave(stage)


def black_holed(mortal: Mortal, stage: int) -> None:
    """The data link into this stage, and the one out of the last; its control link is well."""
    for link in mortal.doors[stage].data_links:
        link.inward = link.outward = swallow


def half_closed(mortal: Mortal, stage: int) -> None:
    """The peer hears everything, and nobody hears the peer."""
    for link in mortal.doors[stage].links:
        link.outward = swallow


def corrupted(mortal: Mortal, stage: int) -> None:
    for link in mortal.doors[stage].data_links:
        link.inward = link.outward = flip_a_bit


Fault = Callable[[Mortal, int], None]
CAUSES: dict[Fault, set[str]] = {
    killed: {"died"},
    stopped: {"silent"},
    shut_down: {"left"},
    black_holed: {"link"},
    half_closed: {"silent"},
    corrupted: {"link", "garbage", "fault"},
}


def ignore(text: str) -> None:
    """Nobody reads this text."""


async def ask(mortal: Mortal, prompt: list[int], on_text: Callable[[str], None] = ignore) -> Answer:
    asked = request(prompt, max_tokens=TOKENS)
    return await mortal.fleet.generate(mortal.fleet.new_session(), asked, Letters(), on_text=on_text)


async def ask_all(mortal: Mortal, after: int, fault: Callable[[], None]) -> list[Answer]:
    """Four sessions at once; the fault happens when so many tokens were shown in all."""
    answers: dict[int, Answer] = {}
    shown = 0

    def count(text: str) -> None:
        nonlocal shown
        shown += 1
        if shown == after:
            fault()

    sessions = [mortal.fleet.new_session() for _ in PROMPTS]

    async def one(number: int) -> None:
        asked = request(PROMPTS[number], max_tokens=TOKENS)
        answers[number] = await mortal.fleet.generate(sessions[number], asked, Letters(), on_text=count)

    async with trio.open_nursery() as nursery:
        for number in range(len(PROMPTS)):
            nursery.start_soon(one, number)
    return [answers[number] for number in range(len(PROMPTS))]


def check_whole(answers: list[Answer], kv: str) -> None:
    for answer, prompt in zip(answers, PROMPTS, strict=True):
        assert answer.error is None
        assert answer.finish_reason is FinishReason.LENGTH
        assert list(answer.token_ids) == expected(kv, prompt)


@pytest.mark.parametrize("kv", ["masked", "paged"])
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("fault", list(CAUSES), ids=lambda fault: fault.__name__)
async def test_answers_go_on_after_a_fault_in_decode(fault: Fault, stage: int, kv: str) -> None:
    async with mortal_fleet(lambda index, number: engine(kv, index, 2), kv=kv) as mortal:
        answers = await ask_all(mortal, 20, lambda: fault(mortal, stage))
        await wait_for(lambda: bool(mortal.fleet.recoveries))
        snapshot = mortal.fleet.snapshot()
    check_whole(answers, kv)
    assert snapshot.epoch == 2
    assert (snapshot.recoveries, snapshot.trouble) == (1, "")
    assert [shown.state for shown in snapshot.stages] == ["ready", "ready"]
    assert mortal.fleet.recoveries[0].loss.cause in CAUSES[fault]
    for recovery in (entry for answer in answers for entry in answer.recoveries):
        check_recovery(recovery, fault, stage, mortal)


def check_recovery(recovery: dict[str, object], fault: Fault, stage: int, mortal: Mortal) -> None:
    assert recovery["cause"] in CAUSES[fault]
    if fault in (killed, stopped, shut_down, half_closed):
        assert recovery["stage"] == stage
        assert mortal.told[0].startswith(f"Stage {stage} (127.0.0.1:")
    assert recovery["resumed_ms"] > recovery["noticed_ms"] >= 0  # type: ignore[operator]
    if recovery["cause"] == "silent":
        assert recovery["noticed_ms"] >= 1000 * HASTY.lost  # type: ignore[operator]
    assert recovery["tokens_reprefilled"] >= len(PROMPTS[0])  # type: ignore[operator]


@pytest.mark.parametrize("kv", ["masked", "paged"])
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("fault", [killed, stopped], ids=lambda fault: fault.__name__)
async def test_answers_go_on_after_a_fault_in_prefill(fault: Fault, stage: int, kv: str) -> None:
    token = trio.lowlevel.current_trio_token()
    at_work: list[Mortal] = []

    def strike(number: int) -> None:
        if number == 0 and at_work:
            trio.from_thread.run_sync(fault, at_work.pop(), stage, trio_token=token)

    def make(index: int, number: int) -> StageEngine:
        struck = index == stage and number == 0
        return engine(kv, index, 2, Mischief(before_run=strike) if struck else None)

    async with mortal_fleet(make, kv=kv) as mortal:
        at_work.append(mortal)
        answers = await ask_all(mortal, -1, lambda: None)
    assert not at_work
    check_whole(answers, kv)


@pytest.mark.parametrize("kv", ["masked", "paged"])
@pytest.mark.parametrize("fault", [killed, stopped], ids=lambda fault: fault.__name__)
async def test_with_speculation_as_well(fault: Fault, kv: str) -> None:
    drafter: Drafter
    if kv == "paged":
        known = {tuple(prompt): [*prompt, *history_reply(prompt, 200)] for prompt in PROMPTS}
        histories = list(known.values())
        drafter = RightDrafter(lambda session, position: histories[session - 1][position])
    else:
        drafter = RightDrafter(by_position)
    async with mortal_fleet(
        lambda index, number: engine(kv, index, 3), 3, kv=kv, drafter=drafter, depth=3
    ) as mortal:
        answers = await ask_all(mortal, 20, lambda: fault(mortal, 1))
    check_whole(answers, kv)
    for answer in answers:
        assert answer.speculation.accepted == answer.speculation.drafted > 0
        assert len(answer.recoveries) == 1


async def test_a_series_of_faults_is_survived() -> None:
    """Each stage in turn, 10 times, whenever eight more tokens came."""
    faults = [(killed, 0), (stopped, 1), (killed, 2), (shut_down, 1), (killed, 1)] * 2
    async with mortal_fleet(lambda index, number: engine("masked", index, 3), 3) as mortal:
        shown = 0

        def strike(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown % 8 == 0 and faults:
                fault, stage = faults.pop(0)
                fault(mortal, stage)

        asked = request([1, 2, 3], max_tokens=150)
        answer = await mortal.fleet.generate(mortal.fleet.new_session(), asked, Letters(), on_text=strike)
        assert mortal.fleet.snapshot().epoch == 11
    assert not faults
    assert list(answer.token_ids) == reply(0, 3, 150, by_position)
    assert [entry["stage"] for entry in answer.recoveries] == [0, 1, 2, 1, 1] * 2


async def test_a_stage_that_computes_for_long_is_not_lost() -> None:
    """PINGs are answered off the inference thread: a prefill of many times the deadline goes on."""
    token = trio.lowlevel.current_trio_token()

    def compute(number: int) -> None:
        if number == 0:
            trio.from_thread.run(trio.sleep, 4 * HASTY.lost, trio_token=token)

    slow = Mischief(before_run=compute)
    async with mortal_fleet(
        lambda index, number: engine("masked", index, 2, slow if index else None)
    ) as mortal:
        answer = await ask(mortal, [1, 2, 3])
        snapshot = mortal.fleet.snapshot()
    assert list(answer.token_ids) == expected("masked", [1, 2, 3])
    assert (snapshot.epoch, answer.recoveries) == (1, ())


async def test_a_silent_stage_is_shown_as_stalled_before_it_is_lost() -> None:
    async with mortal_fleet(lambda index, number: engine("masked", index, 2)) as mortal:
        mortal.doors[1].freeze()
        await wait_for(lambda: mortal.fleet.snapshot().stages[1].state == "stalled")
        detail = mortal.fleet.snapshot().stages[1].detail
        mortal.doors[1].thaw()
        await wait_for(lambda: mortal.fleet.snapshot().stages[1].state == "ready")
        assert mortal.fleet.snapshot().epoch == 1
    assert detail == "nothing was heard of it for 0 s"


async def test_without_a_replacement_the_text_is_kept_and_the_reason_named() -> None:
    shown: list[str] = []
    async with mortal_fleet(lambda index, number: engine("masked", index, 2)) as mortal:

        def kill_for_good(text: str) -> None:
            shown.append(text)
            if len(shown) == 5:
                mortal.peers.unwilling = "an embedded shard peer did not start"
                mortal.doors[1].closed = True
                mortal.doors[1].cut()

        address = mortal.peers.addresses[1]
        answer = await ask(mortal, [1, 2, 3], kill_for_good)
        failure = await mortal.fleet.wait_failed()
        again = await ask(mortal, [1, 2, 3])
        snapshot = mortal.fleet.snapshot()
    assert (answer.finish_reason, again.finish_reason) == (FinishReason.ERROR, FinishReason.ERROR)
    assert answer.text == "".join(shown)
    assert list(answer.token_ids) == expected("masked", [1, 2, 3])[: len(answer.token_ids)]
    assert answer.error is not None
    assert answer.error[0] == failure.message
    assert failure.message.startswith(f"stage 1 at {address} ")
    assert re.search(r"it did not come back \(4 attempts in [01] s\)", failure.message)
    assert answer.error[1] == "what was written is kept; try again when the peer is back"
    assert snapshot.trouble == (
        f"Stage 1 ({address}) stopped working. Nothing can take its place; what was written so far is kept."
    )
    assert mortal.told[-1] == snapshot.trouble


async def test_a_peer_that_dies_again_and_again_is_given_up() -> None:
    """It comes back every time, and dies before a token came."""
    token = trio.lowlevel.current_trio_token()
    at_work: list[Mortal] = []

    def die(number: int) -> None:
        trio.from_thread.run_sync(at_work[0].doors[1].cut, trio_token=token)

    def make(index: int, number: int) -> StageEngine:
        return engine("masked", index, 2, Mischief(before_run=die) if index == 1 else None)

    async with mortal_fleet(make) as mortal:
        at_work.append(mortal)
        answer = await ask(mortal, [1, 2, 3])
        assert mortal.peers.starts == [1, 1 + HASTY.attempts]
    assert answer.finish_reason is FinishReason.ERROR
    assert answer.error is not None
    assert re.search(rf"it did not come back \({HASTY.attempts} attempts in [01] s\)", answer.error[0])


async def test_a_spare_takes_the_place_of_a_lost_peer() -> None:
    async with mortal_fleet(
        lambda index, number: engine("masked", index, 2), embedded=False, spare_of=1
    ) as mortal:
        lost, spare = mortal.peers.addresses[1], mortal.peers.spare_doors[0].address
        answers = await ask_all(mortal, 20, lambda: stopped(mortal, 1))
        snapshot = mortal.fleet.snapshot()
    check_whole(answers, "masked")
    assert snapshot.stages[1].address == str(spare)
    assert mortal.told == [
        f"Stage 1 ({lost}) stopped answering. A spare computer takes its place; your answers go on by "
        "themselves."
    ]


async def test_a_configured_peer_is_dialled_until_it_is_back() -> None:
    async with mortal_fleet(lambda index, number: engine("masked", index, 2), embedded=False) as mortal:
        door: Door = mortal.doors[1]

        async def come_back() -> None:
            dialled = door.dialled
            await wait_for(lambda: door.dialled >= dialled + 2)
            door.closed = False

        async with trio.open_nursery() as nursery:

            def go_away() -> None:
                door.closed = True
                door.cut()
                nursery.start_soon(come_back)

            answers = await ask_all(mortal, 20, go_away)
        assert mortal.fleet.snapshot().epoch >= 3
    check_whole(answers, "masked")


async def test_stop_is_heard_while_a_peer_is_away() -> None:
    async with mortal_fleet(lambda index, number: engine("masked", index, 2), embedded=False) as mortal:
        session = mortal.fleet.new_session()
        shown: list[str] = []

        def go_away(text: str) -> None:
            shown.append(text)
            if len(shown) == 5:
                mortal.doors[0].closed = True
                mortal.doors[0].cut()
                mortal.fleet.on_trouble = lambda sentence: session.stop()

        asked = request([1, 2, 3], max_tokens=TOKENS)
        answer = await mortal.fleet.generate(session, asked, Letters(), on_text=go_away)
    assert answer.finish_reason is FinishReason.CANCELLED
    assert answer.text == "".join(shown)


async def test_an_idle_fleet_recovers_and_is_ready_when_it_is_used() -> None:
    async with mortal_fleet(lambda index, number: engine("masked", index, 2)) as mortal:
        killed(mortal, 0)
        await wait_for(lambda: bool(mortal.fleet.recoveries))
        answer = await ask(mortal, [1, 2, 3])
    assert list(answer.token_ids) == expected("masked", [1, 2, 3])
    assert answer.recoveries == ()


async def test_a_second_turn_after_a_recovery_is_filled_from_the_ids() -> None:
    async with mortal_fleet(lambda index, number: engine("paged", index, 2), kv="paged") as mortal:
        session = mortal.fleet.new_session()
        first = await mortal.fleet.generate(
            session, request([1, 2, 3], max_tokens=9), Letters(), on_text=lambda text: None
        )
        killed(mortal, 1)
        await wait_for(lambda: bool(mortal.fleet.recoveries))
        longer = [1, 2, 3, *first.token_ids, 7]
        second = await mortal.fleet.generate(
            session, request(longer, max_tokens=9), Letters(), on_text=lambda text: None
        )
    assert second.prompt_tokens_cached == 0
    assert list(second.token_ids) == history_reply(longer, 9)


def lying(monkeypatch: pytest.MonkeyPatch, lie: Callable[[Result], Result]) -> None:
    """The last stage sends what `lie` makes of its fifth RESULT."""
    honest = StageWorker.forward
    count = itertools.count()

    def forward(worker: StageWorker, batch: QueuedBatch) -> Forward | Result:
        outgoing = honest(worker, batch)
        return lie(outgoing) if isinstance(outgoing, Result) and next(count) == 4 else outgoing

    monkeypatch.setattr(StageWorker, "forward", forward)


async def test_a_stage_that_answers_garbage_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lying(monkeypatch, lambda result: replace(result, timings=result.timings[:1]))
    async with mortal_fleet(lambda index, number: engine("masked", index, 2)) as mortal:
        answers = await ask_all(mortal, -1, lambda: None)
        [recovery] = mortal.fleet.recoveries
    check_whole(answers, "masked")
    assert (recovery.loss.stage, recovery.loss.cause) == (1, Cause.GARBAGE)
    assert mortal.told[0].endswith(
        "sent data that cannot be right. It is being restarted; your answers go on by themselves."
    )


async def test_an_answer_to_something_else_is_dropped_and_the_lost_one_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lying(monkeypatch, lambda result: replace(result, sequence=BatchSequence(4_000_000_000)))
    async with mortal_fleet(lambda index, number: engine("masked", index, 2)) as mortal:
        answers = await ask_all(mortal, -1, lambda: None)
        [recovery] = mortal.fleet.recoveries
        assert mortal.fleet.chain.dropped == 1
    check_whole(answers, "masked")
    assert (recovery.loss.stage, recovery.loss.cause) == (1, Cause.GARBAGE)


@pytest.mark.parametrize("stage", [0, 1])
async def test_memory_that_runs_out_ends_one_reply_and_no_other(stage: int) -> None:
    """As any exception of OpenVINO in one session's slice."""
    out = Mischief(crashes={9: MemoryError("std::bad_alloc")})
    async with mortal_fleet(
        lambda index, number: engine("masked", index, 2, out if index == stage else None)
    ) as mortal:
        answers = await ask_all(mortal, -1, lambda: None)
        assert mortal.fleet.recoveries == []
    failed = [answer for answer in answers if answer.error]
    assert len(failed) == 1
    assert failed[0].error is not None
    assert "std::bad_alloc" in failed[0].error[0]
    for answer, prompt in zip(answers, PROMPTS, strict=True):
        known = expected("masked", prompt)
        assert list(answer.token_ids) == (known[: len(answer.token_ids)] if answer.error else known)


async def test_another_coordinator_takes_over_peers_that_are_warm() -> None:
    """The chat process died without a word; the next one finds the shards loaded."""
    starts = 0

    def make(index: int, number: int) -> StageEngine:
        nonlocal starts
        starts += 1
        return engine("masked", index, 2)

    async with mortal_fleet(make, embedded=False) as mortal:
        await ask(mortal, [1, 2, 3])
        supervised = mortal.fleet
        async with keep_fleet(supervised.options, KEY, mortal.peers, supervised.speculation) as second:
            answer = await second.generate(
                second.new_session(), request([1, 2, 3], max_tokens=TOKENS), Letters(), on_text=ignore
            )
    assert list(answer.token_ids) == expected("masked", [1, 2, 3])
    assert starts == 2
