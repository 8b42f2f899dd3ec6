"""Replies over real peers and sockets with fake engines: every token is known beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from fleetchat.errors import AuthenticationFailed, FleetError, PeerRefused, PromptError
from fleetchat.fleet.telemetry import FinishReason
from fleetchat.ids import BuildKey
from tests.fakes.chain import Letters, fake_fleet, request
from tests.fakes.engine import FakeEngine, Mischief, by_position, by_session, reply, stopping_at
from tests.peer.builders import manifest
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio


def text_of(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
async def test_a_reply_has_exactly_the_tokens_of_its_positions(stages: int) -> None:
    shown: list[str] = []
    async with fake_fleet(stages) as fake:
        session = fake.fleet.new_session()
        answer = await fake.fleet.generate(
            session, request([1, 2, 3], max_tokens=10), Letters(), on_text=shown.append
        )
    expected = reply(0, 3, 10, by_position)
    assert list(answer.token_ids) == expected
    assert answer.text == "".join(shown) == text_of(expected)
    assert (answer.finish_reason, answer.prompt_tokens, answer.prompt_tokens_cached) == ("length", 3, 0)
    assert answer.speculation.rounds == 10
    assert answer.speculation.cells_live == (12,) * stages
    assert answer.speculation.cells_dead == (0,) * stages


async def test_the_next_turn_reuses_all_but_the_pending_token() -> None:
    async with fake_fleet() as fake:
        session = fake.fleet.new_session()
        first = await fake.fleet.generate(
            session, request([1, 2, 3], max_tokens=5), Letters(), on_text=ignore
        )
        longer = [1, 2, 3, *first.token_ids, 7, 8]
        second = await fake.fleet.generate(session, request(longer, max_tokens=4), Letters(), on_text=ignore)
    assert second.prompt_tokens_cached == first.prompt_tokens + first.completion_tokens - 1
    assert list(second.token_ids) == reply(0, len(longer), 4, by_position)


async def test_another_history_is_rolled_back_and_its_cells_die() -> None:
    async with fake_fleet() as fake:
        session = fake.fleet.new_session()
        await fake.fleet.generate(session, request([1, 2, 3, 4], max_tokens=5), Letters(), on_text=ignore)
        edited = await fake.fleet.generate(
            session, request([1, 2, 9], max_tokens=3), Letters(), on_text=ignore
        )
    assert edited.prompt_tokens_cached == 2
    assert list(edited.token_ids) == reply(0, 3, 3, by_position)
    assert edited.speculation.rollbacks == 1
    assert edited.speculation.cells_masked == (6, 6)  # of 8 held, 2 are kept
    assert edited.speculation.cells_dead == (6, 6)


async def test_a_stop_id_ends_the_reply() -> None:
    async with fake_fleet(oracle=stopping_at({8: 2}, by_position)) as fake:
        session = fake.fleet.new_session()
        answer = await fake.fleet.generate(
            session, request([1, 2, 3], stop_ids=[2]), Letters(), on_text=ignore
        )
    assert list(answer.token_ids) == reply(0, 3, 5, by_position)
    assert answer.finish_reason is FinishReason.STOP


async def test_the_context_ends_a_reply_with_its_own_reason() -> None:
    async with fake_fleet(context=20) as fake:
        session = fake.fleet.new_session()
        answer = await fake.fleet.generate(session, request([1, 2, 3]), Letters(), on_text=ignore)
    assert (answer.finish_reason, answer.completion_tokens) == ("context", 17)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 64, "the prompt has 64 tokens, the context holds 64 with the reply"),
    ],
)
async def test_a_prompt_that_cannot_be_served_is_refused(prompt: list[int], message: str) -> None:
    async with fake_fleet() as fake:
        with pytest.raises(PromptError, match=message):
            await fake.fleet.generate(fake.fleet.new_session(), request(prompt), Letters(), on_text=ignore)


async def test_sessions_at_the_same_time_get_their_own_tokens() -> None:
    answers: dict[int, list[int]] = {}
    async with fake_fleet(3, oracle=by_session) as fake:

        async def one(number: int) -> None:
            session = fake.fleet.new_session()
            asked = request([number] * (number + 1), max_tokens=30)
            answer = await fake.fleet.generate(session, asked, Letters(), on_text=ignore)
            assert session.state is not None
            assert list(answer.token_ids) == reply(session.state.session, number + 1, 30, by_session)
            answers[number] = list(answer.token_ids)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(one, number)
    assert len({tuple(tokens) for tokens in answers.values()}) == 6


async def test_a_stopped_reply_keeps_its_text_and_the_session_goes_on() -> None:
    async with fake_fleet() as fake:
        session = fake.fleet.new_session()
        shown: list[str] = []

        def stop_after_four(text: str) -> None:
            shown.append(text)
            if len(shown) == 4:
                session.stop()

        answer = await fake.fleet.generate(session, request([1, 2, 3]), Letters(), on_text=stop_after_four)
        assert answer.finish_reason is FinishReason.CANCELLED
        assert answer.text == "".join(shown) == text_of(reply(0, 3, 4, by_position))
        again = [1, 2, 3, *answer.token_ids, 9]
        following = await fake.fleet.generate(
            session, request(again, max_tokens=3), Letters(), on_text=ignore
        )
        assert list(following.token_ids) == reply(0, len(again), 3, by_position)


async def test_stopping_inside_a_slice_truncates_every_stage_to_what_was_kept() -> None:
    running, go_on = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hold(number: int) -> None:
        if number == 3:
            trio.from_thread.run_sync(running.set, trio_token=token)
            trio.from_thread.run(go_on.wait, trio_token=token)

    async with fake_fleet(2, mischief=[Mischief(before_run=hold), Mischief()]) as fake:
        session = fake.fleet.new_session()
        outcome: list[FinishReason] = []

        async def ask() -> None:
            answer = await fake.fleet.generate(session, request([1, 2, 3]), Letters(), on_text=ignore)
            outcome.append(answer.finish_reason)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await running.wait()
            session.stop()
        assert outcome == [FinishReason.CANCELLED]
        go_on.set()
        assert session.state is not None
        kept = session.state.length
        answer = await fake.fleet.generate(
            session, request([1, 2, 3, 4], max_tokens=2), Letters(), on_text=ignore
        )
    assert kept == 5  # the prompt and two tokens; the third was pending
    assert list(answer.token_ids) == reply(0, 4, 2, by_position)


async def test_dead_cells_are_compacted_before_they_outgrow_the_reservation() -> None:
    async with fake_fleet(context=32) as fake:
        session = fake.fleet.new_session()
        compactions = 0
        for turn in range(40):  # every turn starts from other ids: most cells of the one before die
            answer = await fake.fleet.generate(
                session, request([1, turn, 3], max_tokens=20), Letters(), on_text=ignore
            )
            assert list(answer.token_ids) == reply(0, 3, 20, by_position)
            compactions += answer.speculation.compactions
            assert session.state is not None
            assert session.state.physical <= fake.fleet.reservation
        assert session.state.session == 1
        assert compactions > 1
        held = (session.state.length, session.state.dead)
        await wait_for(lambda: all(cells_of(engine) == held for engine in fake.engines))


async def test_an_idle_session_makes_room_and_is_filled_again_later() -> None:
    async with fake_fleet(context=32, cells=2 * 288) as fake:
        sessions = [fake.fleet.new_session() for _ in range(3)]
        for session in [*sessions, sessions[0]]:
            answer = await fake.fleet.generate(
                session, request([1, 2], max_tokens=3), Letters(), on_text=ignore
            )
            assert list(answer.token_ids) == reply(0, 2, 3, by_position)
        assert [session.state is not None for session in sessions] == [True, False, True]


async def test_no_room_is_refused_in_numbers() -> None:
    async with fake_fleet(context=32, cells=288) as fake:
        busy, other = fake.fleet.new_session(), fake.fleet.new_session()

        async def refuse_the_second() -> None:
            with pytest.raises(FleetError, match="1 hold 288 cells each, the fleet granted 288"):
                await fake.fleet.generate(other, request([1]), Letters(), on_text=ignore)
            busy.stop()

        async with trio.open_nursery() as nursery:

            def start_other(text: str) -> None:
                nursery.start_soon(refuse_the_second)

            await fake.fleet.generate(
                busy, request([1, 2], max_tokens=25), Letters(), on_text=once(start_other)
            )


async def test_closing_a_session_returns_its_cells_on_every_stage() -> None:
    async with fake_fleet() as fake:
        session = fake.fleet.new_session()
        await fake.fleet.generate(session, request([1, 2], max_tokens=3), Letters(), on_text=ignore)
        assert [len(engine.sessions()) for engine in fake.engines] == [1, 1]
        await fake.fleet.close_session(session)
        await wait_for(lambda: all(not engine.sessions() for engine in fake.engines))


@pytest.mark.parametrize("stage", [0, 1])
async def test_a_fault_of_one_slice_ends_one_reply_and_the_session_recovers(stage: int) -> None:
    faults = [Mischief(), Mischief()]
    faults[stage] = Mischief(crashes={3: RuntimeError("out of luck")})
    async with fake_fleet(mischief=faults) as fake:
        session = fake.fleet.new_session()
        broken = await fake.fleet.generate(
            session, request([1, 2, 3], max_tokens=9), Letters(), on_text=ignore
        )
        assert broken.finish_reason is FinishReason.ERROR
        assert list(broken.token_ids) == reply(0, 3, 3, by_position)
        assert broken.error is not None
        assert "out of luck" in broken.error[0]
        whole = await fake.fleet.generate(
            session, request([1, 2, 3], max_tokens=9), Letters(), on_text=ignore
        )
        assert list(whole.token_ids) == reply(0, 3, 9, by_position)


@pytest.mark.parametrize("stage", [0, 1, 2])
async def test_a_peer_that_dies_ends_the_reply_with_its_text_and_is_named(stage: int) -> None:
    async with fake_fleet(3) as fake:
        session = fake.fleet.new_session()
        shown: list[str] = []

        def kill_after_three(text: str) -> None:
            shown.append(text)
            if len(shown) == 3:
                fake.peers[stage].cancel()

        answer = await fake.fleet.generate(session, request([1, 2, 3]), Letters(), on_text=kill_after_three)
        assert answer.finish_reason is FinishReason.ERROR
        assert answer.text == "".join(shown)
        assert answer.error is not None
        assert answer.error[0].startswith(f"stage {stage} at ")
        lost = [shown.index for shown in fake.fleet.snapshot().stages if shown.state == "lost"]
        assert lost == [stage]


async def test_a_wrong_key_is_named() -> None:
    with pytest.RaisesGroup(AuthenticationFailed, flatten_subgroups=True):
        async with fake_fleet(peer_key=bytes(32)):
            pytest.fail("the peers must not be reached")


async def test_another_build_is_refused_with_the_remedy() -> None:
    other = replace(manifest(2), build_key=BuildKey("d" * 64))
    with pytest.RaisesGroup(PeerRefused, flatten_subgroups=True) as caught:
        async with fake_fleet(asked_manifest=other):
            pytest.fail("the peers must not serve another build")
    assert "dddddddd" in str(caught.value.exceptions[0])


async def test_the_snapshot_shows_what_the_stages_did() -> None:
    async with fake_fleet() as fake:
        session = fake.fleet.new_session()
        await fake.fleet.generate(session, request([1, 2], max_tokens=6), Letters(), on_text=ignore)
        snapshot = fake.fleet.snapshot()
    assert [stage.compute_ms.count for stage in snapshot.stages] == [6, 6]
    assert [(stage.first_layer, stage.last_layer) for stage in snapshot.stages] == [(0, 0), (1, 1)]
    assert [(one.tokens, one.generating) for one in snapshot.sessions] == [(7, False)]


def cells_of(engine: FakeEngine) -> tuple[int, int]:
    cells = engine.cells(engine.sessions()[0])
    return cells.live, cells.dead


def ignore(text: str) -> None:
    """Nobody reads this text."""


def once(call: object) -> object:
    """Calls only the first time."""
    calls: list[str] = []

    def run(text: str) -> None:
        calls.append(text)
        if len(calls) == 1:
            call(text)  # type: ignore[operator]

    return run
