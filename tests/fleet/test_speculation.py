"""Speculation over real peers and sockets: whatever a drafter proposes, the text stays the same."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from fleetchat.child import ABANDONABLE
from fleetchat.fleet.draft.interface import Drafter, Proposal
from fleetchat.fleet.draft.ngram import NgramDrafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, embedded_peers
from fleetchat.fleet.speculation import Speculation, open_speculation
from fleetchat.fleet.telemetry import Answer, FinishReason
from fleetchat.wire.frames import Draw
from tests.fakes.chain import FakeFleet, Letters, fake_fleet, request
from tests.fakes.drafters import FailingDrafter, LyingDrafter, RightDrafter, WrongDrafter
from tests.fakes.engine import FAKE_VOCABULARY, Oracle, by_position, reply, stopping_at
from tests.peer.builders import manifest
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio

TOKENS = 40


def repeating(session: int, position: int) -> int:
    """Text that copies itself, so that looking up pays."""
    return by_position(session, position % 7)


DRAFTERS: dict[str, Callable[[Oracle], Drafter]] = {
    "right": RightDrafter,
    "wrong": lambda oracle: WrongDrafter(oracle, FAKE_VOCABULARY),
    "lying": lambda oracle: LyingDrafter(oracle, FAKE_VOCABULARY, beyond=50),
    "foreign": lambda oracle: RightDrafter(lambda session, position: FAKE_VOCABULARY + position),
    "ngram": lambda oracle: NgramDrafter(),
}


async def ask(fake: FakeFleet, prompt: list[int], tokens: int = TOKENS, **options: object) -> Answer:
    session = fake.fleet.sessions[0] if fake.fleet.sessions else fake.fleet.new_session()
    asked = request(prompt, max_tokens=tokens, **options)  # type: ignore[arg-type]
    return await fake.fleet.generate(session, asked, Letters(), on_text=lambda text: None)


def check_counts(answer: Answer, stages: int) -> None:
    """The identities of the counters, of an answer that no stop rule cut short."""
    counted = answer.speculation
    assert answer.completion_tokens <= counted.accepted + counted.rounds
    assert counted.accepted <= counted.drafted
    assert sum(counted.depth_histogram) in (0, counted.rounds)
    assert sum(depth * rounds for depth, rounds in enumerate(counted.depth_histogram)) == counted.drafted
    assert len(counted.cells_masked) == len(counted.cells_live) == len(counted.cells_dead) == stages


def cells_of(fake: FakeFleet) -> list[tuple[int, int]]:
    """(live, dead) of the one session, on each stage."""
    cells = [engine.cells(engine.sessions()[0]) for engine in fake.engines]
    return [(stage.live, stage.dead) for stage in cells]


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("depth", [1, 3, 8, None])
@pytest.mark.parametrize("name", DRAFTERS)
async def test_the_text_is_that_of_no_drafter(name: str, depth: int | None, stages: int) -> None:
    drafter = DRAFTERS[name](repeating)
    async with fake_fleet(stages, oracle=repeating, drafter=drafter, depth=depth, context=128) as fake:
        answer = await ask(fake, [1, 2, 3])
        again = await ask(fake, [1, 2, 3, *answer.token_ids, 4])
        state = fake.fleet.sessions[0].state
        assert state is not None
        await wait_for(lambda: cells_of(fake) == [(state.length, state.dead)] * stages)
    assert list(answer.token_ids) == reply(0, 3, TOKENS, repeating)
    assert list(again.token_ids) == reply(0, 4 + TOKENS, TOKENS, repeating)
    for one in (answer, again):
        check_counts(one, stages)
    if name in {"right", "lying", "ngram"}:
        assert answer.speculation.accepted > 0
    if name in {"wrong", "lying"}:
        assert answer.speculation.drafted > answer.speculation.accepted
        assert answer.speculation.rollbacks > 0
    if name == "foreign":
        assert answer.speculation.drafted == 0


@pytest.mark.parametrize("depth", [1, 3, 8])
async def test_with_right_drafts_a_round_gives_one_token_more_than_its_depth(depth: int) -> None:
    drafter = RightDrafter(by_position)
    async with fake_fleet(drafter=drafter, depth=depth) as fake:
        counted = (await ask(fake, [1, 2, 3])).speculation
    assert counted.rounds == 1 + math.ceil((TOKENS - 1) / (1 + depth))  # the prompt's round has no drafts
    assert counted.drafted == counted.accepted == TOKENS - counted.rounds
    assert counted.rollbacks == 0


@pytest.mark.parametrize("depth", [1, 3, 8])
async def test_wrong_drafts_are_rolled_back_by_the_round_after_them(depth: int) -> None:
    drafter = WrongDrafter(by_position, FAKE_VOCABULARY)
    async with fake_fleet(drafter=drafter, depth=depth, context=128) as fake:
        counted = (await ask(fake, [1, 2, 3])).speculation
    assert (counted.rounds, counted.accepted) == (TOKENS, 0)
    assert counted.rollbacks == TOKENS - 2  # the first round has no drafts, the last ones are not followed
    assert counted.cells_masked == counted.cells_dead


@pytest.mark.parametrize("place", range(3, 14))
async def test_a_stop_id_inside_an_accepted_block_ends_the_text_there(place: int) -> None:
    oracle = stopping_at({place: 2}, by_position)
    async with fake_fleet(oracle=oracle, drafter=RightDrafter(oracle), depth=8) as fake:
        answer = await ask(fake, [1, 2, 3], stop_ids=[2])
        again = await ask(fake, [1, 2, 3, *answer.token_ids, 4, 5], 6)
    assert list(answer.token_ids) == reply(0, 3, place - 3, oracle)
    assert answer.finish_reason is FinishReason.STOP
    assert again.prompt_tokens_cached >= answer.prompt_tokens + answer.completion_tokens - 1


async def test_a_stop_string_across_two_blocks_ends_the_text_before_it() -> None:
    text = "".join(map(chr, reply(0, 3, TOKENS, by_position)))
    for start in range(1, 12):
        stop = text[start : start + 3]
        async with fake_fleet(drafter=RightDrafter(by_position), depth=3) as fake:
            answer = await ask(fake, [1, 2, 3], stop_strings=[stop])
        assert answer.text == text[: text.index(stop)]


async def test_one_token_at_most_gives_one_token() -> None:
    async with fake_fleet(drafter=RightDrafter(by_position), depth=8) as fake:
        answer = await ask(fake, [1, 2, 3], 1)
    assert list(answer.token_ids) == reply(0, 3, 1, by_position)
    assert answer.speculation.drafted == 0


async def test_drafts_stay_inside_the_context() -> None:
    async with fake_fleet(drafter=RightDrafter(by_position), depth=8, context=32) as fake:
        answer = await ask(fake, [1, 2, 3], 1000)
        assert max(live for live, _ in cells_of(fake)) < 32
    assert (answer.finish_reason, answer.completion_tokens) == (FinishReason.CONTEXT, 29)


async def test_a_draft_that_fails_is_dropped_and_said_and_the_answer_goes_on() -> None:
    drafter = FailingDrafter(RightDrafter(by_position), 3)
    async with fake_fleet(drafter=drafter, depth=2) as fake:
        answer = await ask(fake, [1, 2, 3])
        again = await ask(fake, [1, 2, 3, *answer.token_ids, 4], 5)
    assert list(answer.token_ids) == reply(0, 3, TOKENS, by_position)
    assert len(answer.notes) == 1
    assert "out of memory" in answer.notes[0]
    assert answer.speculation.accepted > 0
    assert (again.notes, again.speculation.drafted) == ((), 0)
    assert drafter.calls_after_failure == 0


async def test_a_long_reply_with_wrong_drafts_never_dies_of_dead_cells() -> None:
    drafter = WrongDrafter(by_position, FAKE_VOCABULARY)
    async with fake_fleet(drafter=drafter, depth=4, context=512) as fake:
        answer = await ask(fake, [1, 2, 3], 400)
        state = fake.fleet.sessions[0].state
        assert state is not None
        assert state.physical <= fake.fleet.reservation
    assert list(answer.token_ids) == reply(0, 3, 400, by_position)
    assert answer.speculation.compactions >= 1


async def test_sessions_that_speculate_at_the_same_time_keep_to_their_own_text() -> None:
    drafter = LyingDrafter(by_position, FAKE_VOCABULARY)
    texts: dict[int, list[int]] = {}
    async with fake_fleet(3, drafter=drafter, context=256) as fake:

        async def one(number: int) -> None:
            session = fake.fleet.new_session()
            asked = request([1] * number, max_tokens=60)
            answer = await fake.fleet.generate(session, asked, Letters(), on_text=lambda text: None)
            texts[number] = list(answer.token_ids)

        async with trio.open_nursery() as nursery:
            for number in range(1, 7):
                nursery.start_soon(one, number)
    assert texts == {number: reply(0, number, 60, by_position) for number in range(1, 7)}


async def test_a_look_up_that_finds_nothing_gives_the_reason_of_its_own() -> None:
    """Not that of the round before, in which there was something to draft."""
    speculation = Speculation(NgramDrafter(), depth=None, max_draft=8, vocabulary=100)
    depth = speculation.new_depth()
    draw = Draw(temperature=0.0, top_p=1.0, top_k=0, penalty=1.0, seed=1, reply_start=0)

    async def propose(committed: list[int]) -> Proposal:
        proposal, _ = await speculation.propose(1, committed, depth, 50, draw, lambda: False)
        return proposal

    again = [5, 6, 7, 8, 9, 5, 6, 7, 8]
    assert (await propose(again)).ids
    assert "hold" in depth.reason
    assert not (await propose([*again, 40])).ids
    assert depth.reason == "no draft: nothing like it came before"


async def test_a_draft_model_that_loads_is_left_behind_when_the_chat_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, released = threading.Event(), threading.Event()

    def load(*arguments: object) -> NoDrafter:
        started.set()
        released.wait()
        return NoDrafter()

    monkeypatch.setattr("fleetchat.fleet.speculation._load_model", load)
    options = FleetOptions(
        manifest(),
        Path("unused"),
        embedded_peers(1),
        "fast",
        "masked",
        64,
        drafter="model",
        draft_model=Path("unused"),
    )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_speculation, options)
            await trio.to_thread.run_sync(started.wait)
            assert ABANDONABLE in [thread.name for thread in threading.enumerate()]
            nursery.cancel_scope.cancel()
    finally:
        released.set()
    await wait_for(lambda: ABANDONABLE not in [thread.name for thread in threading.enumerate()])
