"""Forks, eviction and admission over real peers with fake paged engines.

A reply depends on every id before it, so that one wrong cell anywhere changes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.errors import FleetError
from fleetchat.fleet.coordinator import FleetSession
from fleetchat.fleet.draft.depth import FixedDepth
from fleetchat.fleet.draft.interface import (
    NOTHING,
    ChooseDepth,
    DraftKey,
    DraftSource,
    Guess,
    Proposal,
    ShouldStop,
    never,
)
from fleetchat.fleet.sharing import WORTH_A_FORK
from fleetchat.fleet.telemetry import FinishReason
from fleetchat.wire.frames import Draw
from tests.fakes.paged_engine import BLOCK, history_token
from tests.fakes.paged_fleet import paged_fleet
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio
SYSTEM = list(range(40, 60))  # five blocks


class HalfRight:
    """Every third draft is wrong, and with it what follows."""

    name = "half right"

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        key = DraftKey(DraftSource.MODEL)
        history = list(committed)
        for _ in range(depth(key)):
            history.append(history_token(history) if len(history) % 3 else 1)
        ids = tuple(history[len(committed) :])
        return Proposal(ids, (Guess(key, ids),)) if ids else NOTHING

    def forget(self, session: int) -> None:
        """Nothing is kept."""


async def test_turns_edits_and_stops_keep_the_cells_right() -> None:
    async with paged_fleet() as paged:
        session = paged.fleet.new_session()
        first = await paged.ask(session, SYSTEM)
        longer = [*SYSTEM, *first.token_ids, 7, 8]
        second = await paged.ask(session, longer)
        assert second.prompt_tokens_cached == len(SYSTEM) + 5
        edited = await paged.ask(session, [*SYSTEM[:10], 9])
        assert edited.prompt_tokens_cached == 10
        assert (edited.speculation.rollbacks, edited.speculation.cells_masked) == (1, (23, 23))
        assert edited.speculation.cells_dead == (0, 0)
        await paged.settled()


async def test_a_common_prefix_is_forked_and_not_computed_again() -> None:
    async with paged_fleet() as paged:
        one, two, three = (paged.fleet.new_session() for _ in range(3))
        await paged.ask(one, [*SYSTEM, 1])
        other = await paged.ask(two, [*SYSTEM, 2, 3])
        assert other.prompt_tokens_cached == len(SYSTEM)
        regenerated = await paged.ask(three, [*SYSTEM, 1])  # all but the last row is there
        assert regenerated.prompt_tokens_cached == len(SYSTEM)
        assert paged.fleet.holdings.forks == paged.fleet.snapshot().forks == 2
        await paged.settled()


@pytest.mark.parametrize("shared", range(WORTH_A_FORK - 1, WORTH_A_FORK + BLOCK))
async def test_a_prefix_that_spares_a_few_rows_is_forked_wherever_it_ends(shared: int) -> None:
    """Also within a block: the sessions then write on in blocks of their own."""
    prompts = ([*SYSTEM[:shared], 1], [*SYSTEM[:shared], 2, 3, 4])
    expected = []
    for prompt in prompts:
        async with paged_fleet() as paged:
            expected.append((await paged.ask(paged.fleet.new_session(), prompt)).token_ids)
    async with paged_fleet() as paged:
        answers = [await paged.ask(paged.fleet.new_session(), prompt) for prompt in prompts]
        assert [answer.token_ids for answer in answers] == expected
        forked = shared >= WORTH_A_FORK
        assert answers[1].prompt_tokens_cached == (shared if forked else 0)
        assert paged.fleet.holdings.forks == forked
        await paged.settled()


async def test_a_session_with_other_cells_takes_over_a_longer_prefix() -> None:
    async with paged_fleet() as paged:
        one, two = paged.fleet.new_session(), paged.fleet.new_session()
        await paged.ask(one, [*SYSTEM, 1])
        await paged.ask(two, [1, 2, 3])
        answer = await paged.ask(two, [*SYSTEM, 1, 5])
        assert answer.prompt_tokens_cached == len(SYSTEM) + 1
        assert [session.state is not None for session in (one, two)] == [True, True]
        await paged.settled()


async def test_an_idle_session_is_evicted_least_recently_used_first_and_filled_again() -> None:
    async with paged_fleet(cells=64, context=32) as paged:
        sessions = [paged.fleet.new_session() for _ in range(3)]
        prompts = [[number] * 22 for number in range(1, 4)]
        for session, prompt in zip(sessions, prompts, strict=True):
            await paged.ask(session, prompt)
        assert [session.state is not None for session in sessions] == [False, True, True]
        assert paged.fleet.holdings.evictions == paged.fleet.snapshot().evictions == 1
        again = await paged.ask(sessions[0], prompts[0])
        assert again.prompt_tokens_cached == 0
        assert [session.state is not None for session in sessions] == [True, False, True]
        await paged.settled()


async def test_short_sessions_stay_as_long_as_there_is_room() -> None:
    """Cells are counted as they are used: eight short chats live in the room of two long ones."""
    async with paged_fleet(cells=128, context=64) as paged:
        sessions = [paged.fleet.new_session() for _ in range(8)]
        for number, session in enumerate(sessions):
            await paged.ask(session, [number + 1] * 8, 4)
        assert all(session.state is not None for session in sessions)
        assert paged.fleet.holdings.evictions == 0


async def test_sixteen_sessions_in_room_for_eight_all_finish() -> None:
    async with paged_fleet(cells=8 * 32, context=32) as paged:
        for engine in paged.engines:
            engine.before_run = lambda slices: time.sleep(0.002)  # so that sharing a pass pays
        sessions = [paged.fleet.new_session() for _ in range(16)]
        most = 0

        async def talk(number: int) -> None:
            nonlocal most
            prompt = [number + 1] * 10
            for _ in range(2):
                answer = await paged.ask(sessions[number], prompt, 8)
                prompt = [*prompt, *answer.token_ids, 3]
                most = max(most, sum(1 for one in sessions if one.state is not None))

        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(talk, number)
        assert paged.fleet.holdings.evictions > 0
        assert paged.fleet.admission.waiting == 0
        assert max(engine.largest_pass for engine in paged.engines) > 1
        await paged.settled()


async def test_a_reply_that_can_never_fit_is_refused_in_numbers() -> None:
    async with paged_fleet(cells=32, context=64) as paged:
        session = paged.fleet.new_session()
        with pytest.raises(FleetError, match="may take 40 KV cells, the fleet granted 32") as caught:
            await paged.ask(session, [1] * 20, 20)
        assert "--kv-cells" in (caught.value.hint or "")
        assert "kv_cells under [fleet]" in (caught.value.hint or "")
        await paged.ask(session, [1] * 20, 12)


async def test_a_reply_that_waits_for_room_can_be_stopped() -> None:
    running, go_on = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    held = False

    def hold(slices: object) -> None:
        nonlocal held
        if not held:
            held = True
            trio.from_thread.run_sync(running.set, trio_token=token)
            trio.from_thread.run(go_on.wait, trio_token=token)

    async with paged_fleet(cells=32, context=32) as paged:
        paged.engines[0].before_run = hold
        busy, waiting, third = (paged.fleet.new_session() for _ in range(3))
        outcomes: list[FinishReason] = []

        async def ask(session: FleetSession, *, right: bool) -> None:
            answer = await paged.ask(session, [5] * 10, 10, right=right)
            outcomes.append(answer.finish_reason)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(busy, right=True))
            await running.wait()
            nursery.start_soon(lambda: ask(waiting, right=False))
            await wait_for(lambda: paged.fleet.admission.waiting == 1)
            nursery.start_soon(lambda: ask(third, right=True))
            await wait_for(lambda: paged.fleet.snapshot().waiting == 2)
            waiting.stop()
            await wait_for(lambda: outcomes == [FinishReason.CANCELLED])
            assert paged.fleet.admission.waiting == 1
            go_on.set()
        assert outcomes[1:] == [FinishReason.LENGTH, FinishReason.LENGTH]


async def test_a_failed_slice_ends_one_reply_and_the_session_is_filled_again() -> None:
    async with paged_fleet() as paged:
        session = paged.fleet.new_session()
        paged.engines[1].mischief.faults = {2: ("exception", "out of luck")}
        answer = await paged.ask(session, SYSTEM, right=False)
        assert answer.finish_reason is FinishReason.ERROR
        await paged.ask(session, SYSTEM)
        await paged.settled()


@pytest.mark.parametrize("depth", [1, 3, 8])
async def test_lies_cost_no_cells_and_change_nothing(depth: int) -> None:
    async with paged_fleet(drafter=HalfRight(), depth=depth) as paged:
        session = paged.fleet.new_session()
        answer = await paged.ask(session, SYSTEM, 20)
        assert answer.speculation.cells_dead == (0, 0)
        assert answer.speculation.compactions == 0
        assert answer.speculation.rollbacks > 0


TURNS = st.lists(
    st.tuples(
        st.integers(0, 5),  # session
        st.integers(0, 3),  # what it continues: 0 its own reply, else an edit
        st.lists(st.integers(1, 3), min_size=1, max_size=12),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=14,
)


@given(turns=TURNS, together=st.integers(1, 4), wrong=st.booleans())
@settings(max_examples=25, deadline=None)
async def test_any_mix_of_turns_gives_the_replies_of_a_fresh_chain(
    turns: list[tuple[int, int, list[int], int]], together: int, wrong: bool
) -> None:
    """Forks, edits, evictions and waiting in any order: few cells, few different ids, so that all happen."""
    drafter = HalfRight() if wrong else None
    async with paged_fleet(cells=96, context=48, drafter=drafter, depth=2) as paged:
        sessions = [paged.fleet.new_session() for _ in range(6)]
        texts: dict[int, list[int]] = {number: [] for number in range(6)}
        limiter = trio.CapacityLimiter(together)

        async def turn(number: int, kept: int, more: list[int], tokens: int) -> None:
            async with limiter:
                if sessions[number].generation is not None:
                    return
                before = texts[number][: len(texts[number]) // (kept + 1)]
                prompt = [*before, *more][:39]
                answer = await paged.ask(sessions[number], prompt, tokens)
                texts[number] = [*prompt, *answer.token_ids]

        async with trio.open_nursery() as nursery:
            for one in turns:
                nursery.start_soon(turn, *one)
        await paged.settled()


async def test_depth_is_chosen_with_the_rows_of_the_others_in_mind() -> None:
    """Sessions share a pass here, so what a draft costs depends on who else is in it."""
    asked: list[int] = []

    class Noting(FixedDepth):
        def choose(self, key: DraftKey, *, other_rows: int = 0) -> int:
            asked.append(other_rows)
            return super().choose(key, other_rows=other_rows)

    async with paged_fleet(1, drafter=HalfRight(), depth=2) as paged:
        paged.engines[0].before_run = lambda slices: time.sleep(0.002)  # what a pass takes
        sessions = [paged.fleet.new_session() for _ in range(4)]
        for session in sessions:
            session.depth = Noting(2)
        async with trio.open_nursery() as nursery:
            for number, session in enumerate(sessions):
                nursery.start_soon(paged.ask, session, [number + 1] * 5, 30)
        assert max(engine.largest_pass for engine in paged.engines) > 1
    assert asked[0] == 0
    assert max(asked) >= 3
