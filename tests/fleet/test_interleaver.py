"""Many sessions on one chain, over real peers and sockets: everybody gets their own tokens, whatever happens.

Fake engines take random times, by their hook; every random choice comes from the seed in the test's name.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
import trio

from fleetchat.engine.interface import EngineSlice, SliceOutput
from fleetchat.fleet.coordinator import FleetSession
from fleetchat.fleet.telemetry import Answer, FinishReason
from tests.fakes.chain import FakeFleet, Letters, fake_fleet, request
from tests.fakes.engine import Mischief, by_session, reply
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio


def ignore(text: str) -> None:
    """Text is checked in the answer."""


def uneven(seed: int, most: float, stages: int = 2) -> list[Mischief]:
    """Stages that take up to `most` seconds a slice. Each has its own generator: they run in threads."""

    def hook(random: Random) -> Callable[[int], None]:
        return lambda number: time.sleep(random.random() * most)

    return [Mischief(before_run=hook(Random(f"{seed} {stage}"))) for stage in range(stages)]


@dataclass
class Talk:
    """One session's reply. `after` says when it begins, `stop_after` ends it at so many tokens."""

    fake: FakeFleet
    prompt: list[int]
    tokens: int
    stop_after: int | None = None
    shown: int = 0
    answers: list[Answer] = field(default_factory=list)
    session: FleetSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.fake.fleet.new_session()

    async def run(self, on_prefill: Callable[[int, int], None] = lambda done, total: None) -> None:
        asked = request(self.prompt, max_tokens=self.tokens)
        answer = await self.fake.fleet.generate(
            self.session, asked, Letters(), on_text=self._show, on_prefill=on_prefill
        )
        self.answers.append(answer)
        self.check(answer)

    def _show(self, text: str) -> None:
        self.shown += 1
        if self.shown == self.stop_after:
            self.session.stop()

    def check(self, answer: Answer) -> None:
        """The tokens are this session's own, at their positions, none lost and none doubled."""
        assert answer.error is None
        got = list(answer.token_ids)
        if self.session.state is None:  # stopped before its first slice
            assert got == []
            return
        assert got == reply(self.session.state.session, len(self.prompt), len(got), by_session)
        if answer.finish_reason is not FinishReason.CANCELLED:
            assert len(got) == self.tokens

    def continue_with(self, more: list[int], tokens: int) -> None:
        """The next turn's prompt."""
        self.prompt = [*self.prompt, *self.answers[-1].token_ids, *more]
        self.tokens, self.stop_after, self.shown = tokens, None, 0


def lengths(fake: FakeFleet, talk: Talk) -> list[int]:
    """Logical length of the session on every stage."""
    assert talk.session.state is not None
    wanted = talk.session.state.session
    return [
        sum(engine.length(key) for key in engine.sessions() if key.session == wanted)
        for engine in fake.engines
    ]


def reported(fake: FakeFleet, talk: Talk) -> list[int | None]:
    """The same as the stages' last STATS have it."""
    assert talk.session.state is not None
    wanted = talk.session.state.session
    found = []
    for stage in fake.fleet.chain.stages:
        sessions = stage.stats.sessions if stage.stats else ()
        found.append(next((one.length for one in sessions if one.session == wanted), None))
    return found


@pytest.mark.parametrize("seed", range(50))
async def test_four_prompts_in_any_order_one_cancelled_one_joining_late(seed: int) -> None:
    random = Random(seed)
    async with fake_fleet(oracle=by_session, mischief=uneven(seed, 0.001)) as fake:
        talks = [
            Talk(fake, [random.randrange(3, 99)] * random.choice([1, 3, 20, 35]), random.randrange(4, 14))
            for _ in range(4)
        ]
        cancelled, late = random.sample(talks, 2)
        cancelled.stop_after = random.randrange(1, cancelled.tokens)
        started = [talk for talk in talks if talk is not late]
        random.shuffle(started)
        trigger = random.choice(started)
        joins_at = random.randrange(1, 1 + (trigger.stop_after or trigger.tokens))
        async with trio.open_nursery() as nursery:
            for talk in started:
                nursery.start_soon(talk.run)
            await wait_for(lambda: trigger.shown >= joins_at or bool(trigger.answers))
            nursery.start_soon(late.run)
        assert cancelled.answers[0].finish_reason is FinishReason.CANCELLED
        assert [talk.answers[0].finish_reason for talk in talks if talk is not cancelled] == ["length"] * 3
        cancelled.continue_with([7, 8], 4)
        await cancelled.run()  # a wrong length on any stage would fail as desync
        assert not fake.fleet.chain.dropped


@pytest.mark.slow
async def test_ten_thousand_slices_and_none_in_another_session() -> None:
    async with fake_fleet(oracle=by_session, context=1400) as fake:
        talks = [Talk(fake, [number + 3] * (1 + 9 * number), 1260) for number in range(8)]
        async with trio.open_nursery() as nursery:
            for talk in talks:
                nursery.start_soon(talk.run)
        assert fake.engines[0].slices_run >= 10_000
        assert fake.engines[0].slices_run == fake.engines[1].slices_run
        assert sum(talk.answers[0].completion_tokens for talk in talks) == 8 * 1260


async def test_cancel_in_decode_leaves_every_stage_at_what_was_kept() -> None:
    running, go_on = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    async with fake_fleet(oracle=by_session) as fake:
        stopped, other = Talk(fake, [5] * 4, 40), Talk(fake, [6] * 3, 40)
        run = fake.engines[1].run

        def hold(slices: Sequence[EngineSlice]) -> list[SliceOutput]:
            """In a slice of the session that is stopped: in one of the other's it may have its own."""
            state = stopped.session.state
            if (
                stopped.shown >= 8
                and not running.is_set()
                and state
                and slices[0].key.session == state.session
            ):
                trio.from_thread.run_sync(running.set, trio_token=token)
                trio.from_thread.run(go_on.wait, trio_token=token)
            return run(slices)

        fake.engines[1].run = hold  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stopped.run)
            nursery.start_soon(other.run)
            await running.wait()
            stopped.session.stop()
            await wait_for(lambda: bool(stopped.answers))
            shown = other.shown
            go_on.set()
            # What was sent after the CANCEL comes back after it was carried out on every stage.
            await wait_for(lambda: other.shown >= shown + 2)
            assert stopped.session.state is not None
            kept = stopped.session.state.length
            assert lengths(fake, stopped) == [kept, kept]
            assert kept == 4 + stopped.answers[0].completion_tokens - 1
        assert other.answers[0].finish_reason is FinishReason.LENGTH


async def test_cancel_in_prefill_leaves_every_stage_at_what_was_kept() -> None:
    async with fake_fleet(oracle=by_session, context=512, mischief=uneven(3, 0.0005)) as fake:
        other, stopped = Talk(fake, [6] * 3, 60), Talk(fake, [5] * 400, 9)

        def stop_early(done: int, total: int) -> None:
            if done:
                stopped.session.stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            await wait_for(lambda: other.shown >= 3)
            nursery.start_soon(stopped.run, stop_early)
            await wait_for(lambda: bool(stopped.answers))
            shown = other.shown
            await wait_for(lambda: other.shown >= shown + 2)
            assert stopped.session.state is not None
            kept = stopped.session.state.length
            assert 0 < kept < 400
            assert lengths(fake, stopped) == [kept, kept]
        assert stopped.answers[0].finish_reason is FinishReason.CANCELLED
        assert stopped.answers[0].token_ids == ()
        stopped.tokens = 5
        await stopped.run()
        assert stopped.answers[1].prompt_tokens_cached == kept
        assert other.answers[0].finish_reason is FinishReason.LENGTH


@pytest.mark.slow
async def test_stages_report_what_a_cancel_kept_and_close_returns_all_of_it() -> None:
    async with fake_fleet(oracle=by_session) as fake:
        other, stopped = Talk(fake, [6] * 3, 10), Talk(fake, [5] * 4, 30, stop_after=6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            nursery.start_soon(stopped.run)
        assert stopped.session.state is not None
        kept = stopped.session.state.length
        await wait_for(lambda: reported(fake, stopped) == [kept, kept])
        await fake.fleet.close_session(stopped.session)
        await fake.fleet.close_session(other.session)
        await wait_for(
            lambda: all(stage.stats and stage.stats.cells_used == 0 for stage in fake.fleet.chain.stages)
        )
        assert all(not engine.sessions() for engine in fake.engines)


async def test_a_stream_goes_on_between_the_chunks_of_a_long_prompt() -> None:
    async with fake_fleet(oracle=by_session, context=1024, mischief=uneven(5, 0.0004)) as fake:
        stream, long = Talk(fake, [6] * 3, 1000, stop_after=900), Talk(fake, [5] * 600, 3)
        at: list[int] = []  # tokens of the stream at each step of the prefill
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run)
            await wait_for(lambda: stream.shown >= 5)
            await long.run(lambda done, total: at.append(stream.shown))
            stream.session.stop()
        steps = len(at) - 1
        assert steps > 3
        # A token's way is longer than a chunk's, on a loaded machine several times as long.
        assert at[-1] - at[0] >= max(3, steps // 8), at


async def test_focus_is_looked_at_for_every_chunk() -> None:
    done: dict[str, int] = {}
    async with fake_fleet(oracle=by_session, context=1024, mischief=uneven(6, 0.0003)) as fake:
        stream = Talk(fake, [6] * 3, 1000, stop_after=950)
        first, second = Talk(fake, [5] * 600, 2), Talk(fake, [7] * 600, 2)

        def note(name: str, rows: int, total: int) -> None:
            done[name] = rows
            if name == "first" and rows >= 100:
                fake.fleet.interleaver.focused = second.session.number

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run)
            await wait_for(lambda: stream.shown >= 3)
            fake.fleet.interleaver.focused = first.session.number

            async def second_is_ahead() -> None:
                await second.run(partial(note, "second"))
                assert done["first"] < 600

            async with trio.open_nursery() as prompts:
                prompts.start_soon(first.run, partial(note, "first"))
                prompts.start_soon(second_is_ahead)
            stream.session.stop()


@dataclass
class Soak:
    """Eight sessions that join, leave and cancel at random."""

    fake: FakeFleet
    random: Random
    replies: int = 0
    cancelled: int = 0

    async def wave(self, seconds: float) -> None:
        """Sessions come and go for a while; nothing is left at its end."""
        deadline = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(self._lives, deadline, Random(self.random.random()))
        assert self.fake.fleet.sessions == []
        await wait_for(lambda: not any(engine.sessions() for engine in self.fake.engines))
        # The RESULT of a round that was cancelled may still be on its way back.
        await wait_for(lambda: self.fake.fleet.interleaver.in_flight_since is None)

    async def _lives(self, deadline: float, random: Random) -> None:
        while trio.current_time() < deadline:
            talk = Talk(self.fake, [random.randrange(3, 99)] * random.choice([1, 4, 18, 60, 150]), 12)
            for _ in range(random.randrange(1, 4)):
                await self._turn(talk, random)
                if talk.session.state is None or len(talk.prompt) > 300:
                    break
            await self.fake.fleet.close_session(talk.session)

    async def _turn(self, talk: Talk, random: Random) -> None:
        if talk.answers:
            talk.continue_with([random.randrange(3, 99)] * random.choice([1, 30]), random.randrange(1, 30))
        talk.stop_after = random.choice([None, None, random.randrange(1, 12)])
        in_prefill = random.random() < 0.15

        def stop_in_prefill(done: int, total: int) -> None:
            if in_prefill and done:
                talk.session.stop()

        await talk.run(stop_in_prefill)
        self.replies += 1
        self.cancelled += talk.answers[-1].finish_reason is FinishReason.CANCELLED


@pytest.mark.slow
async def test_soak_of_eight_sessions_that_join_leave_and_cancel() -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    async with fake_fleet(oracle=by_session, context=512, mischief=uneven(seed, 0.0004)) as fake:
        soak = Soak(fake, Random(seed))
        objects = []
        for _ in range(5):
            await soak.wave(3.0)
            gc.collect()
            objects.append(len(gc.get_objects()))
    print(f"{soak.replies} replies, {soak.cancelled} cancelled, objects {objects}")
    assert soak.replies > 100
    assert soak.cancelled > 10
    assert objects[-1] <= 1.02 * objects[2]
    assert not fake.fleet.chain.dropped
