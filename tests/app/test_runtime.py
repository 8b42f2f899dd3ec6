"""The chat runtime under plain trio, on a fake fleet and a clock that jumps."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from fleetchat.app.chat_task import GenerationSettings
from fleetchat.app.events import (
    BuildProgressed,
    ChatNumber,
    FleetReady,
    PrefillProgressed,
    ReplyFinished,
    RuntimeEvent,
    RuntimeFailed,
    SnapshotTaken,
    StartProgressed,
    TextArrived,
    Told,
)
from fleetchat.app.runtime import ChatRuntime
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.turn import Turn
from fleetchat.errors import BuildError
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.session import SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason
from tests.app.turns import asking
from tests.fakes.chat_fleet import FakeBackend
from tests.fakes.runtime import CONTEXT, MODEL

pytestmark = pytest.mark.trio

ONE, TWO = ChatNumber(1), ChatNumber(2)
SETTINGS = GenerationSettings(SamplingSettings(temperature=0.5), seed=40, max_tokens=9, stop_strings=("END",))
PROMPT = {"system": "Be brief.", "overflow": "refuse"}
REST = {"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}
CONFIGURED = ChatOptions(temperature=0.5, seed=40, max_tokens=9, **PROMPT, **REST)
OTHER_CONFIGURED = ChatOptions(temperature=0.9, seed=7, max_tokens=5, **PROMPT, **REST)


class Log(list[RuntimeEvent]):
    """What the runtime reported; waits for more of it."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = trio.Event()

    def report(self, event: RuntimeEvent) -> None:
        self.append(event)
        self._grown.set()
        self._grown = trio.Event()

    async def wait(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(60):  # seconds of the jumping clock
            while not condition():
                await self._grown.wait()

    async def wait_for(self, condition: Callable[[RuntimeEvent], bool]) -> None:
        await self.wait(lambda: any(condition(event) for event in self))

    async def wait_answers(self, count: int, chat: ChatNumber = ONE) -> Answer:
        await self.wait(lambda: len(self.answers(chat)) >= count)
        return self.answers(chat)[-1]

    async def wait_ready(self, count: int = 1) -> None:
        await self.wait(lambda: sum(isinstance(event, FleetReady) for event in self) >= count)

    def text(self, chat: ChatNumber) -> str:
        return "".join(e.text for e in self if isinstance(e, TextArrived) and e.chat == chat)

    def answers(self, chat: ChatNumber = ONE) -> list[Answer]:
        return [event.answer for event in self if isinstance(event, ReplyFinished) and event.chat == chat]


@asynccontextmanager
async def serving(
    backend: FakeBackend, *, settings: GenerationSettings = SETTINGS
) -> AsyncIterator[tuple[ChatRuntime, Log]]:
    log = Log()
    runtime = ChatRuntime(backend, settings, log.report)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        yield runtime, log
        nursery.cancel_scope.cancel()


async def test_start_reports_build_fleet_and_snapshots(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    async with serving(backend) as (_, log):
        await log.wait_for(lambda event: isinstance(event, SnapshotTaken))
        assert log[:3] == [
            BuildProgressed("cutting", 1, 2),
            StartProgressed("starting shard peer 0"),
            FleetReady(MODEL, CONTEXT, CONFIGURED),
        ]
        began, before = trio.current_time(), backend.fleets[0].looked_at
        log.clear()
        await trio.sleep(10)
        taken = backend.fleets[0].looked_at - before
        told = sum(isinstance(event, SnapshotTaken) for event in log)
        assert trio.current_time() == began + 10
        assert 39 <= taken <= 41, "also an idle fleet is looked at four times a second"
        assert 9 <= told <= 11, "the screen hears once a second of a fleet that stands still"
    assert backend.closed == 1


async def test_what_changes_at_rest_is_told_at_once(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    async with serving(backend) as (_, log):
        await log.wait_for(lambda event: isinstance(event, SnapshotTaken))
        for _ in range(3):
            log.clear()
            began = trio.current_time()
            backend.fleets[0].new_session()
            await log.wait_for(lambda event: isinstance(event, SnapshotTaken))
            assert trio.current_time() - began <= 0.25


async def test_while_a_reply_is_written_the_fleet_is_looked_at_four_times_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend(script=["word"] * 100, pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_for(lambda event: isinstance(event, SnapshotTaken))
        await trio.sleep(0.1)
        log.clear()
        runtime.submit(ONE, asking("hello"))
        await trio.sleep(0.01)
        assert sum(isinstance(event, SnapshotTaken) for event in log) == 1, "at once"
        await trio.sleep(9)
        assert 35 <= sum(isinstance(event, SnapshotTaken) for event in log) <= 38


async def test_a_move_that_failed_is_told(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    async with serving(backend) as (_, log):
        await log.wait_ready()
        backend.fleets[0].events.note(1.0, EventKind.STAYED, "2 stages serve on: no peer answers")
        await log.wait_for(lambda event: isinstance(event, Told))
        assert [event.text for event in log if isinstance(event, Told)] == [
            "The fleet did not move: 2 stages serve on: no peer answers"
        ]


async def test_a_prompt_is_answered_in_coalesced_text(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(100)], pace=0.01)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello there"))
        answer = await log.wait_answers(1)
        assert answer.finish_reason is FinishReason.STOP
        assert log.text(ONE) == answer.text
        pieces = [event for event in log if isinstance(event, TextArrived)]
        assert len(pieces) <= 12  # one second of text, ten times a second
        assert PrefillProgressed(ONE, 2, 2) in log
        last = [event for event in log if isinstance(event, TextArrived | ReplyFinished)][-1]
        assert isinstance(last, ReplyFinished)


async def test_requests_carry_settings_and_the_seed_of_the_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend()
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        first_turn = asking("hello")
        runtime.submit(ONE, first_turn)
        reply = await log.wait_answers(1)
        said = Message(Role.ASSISTANT, reply.text, reply.token_ids)
        options = ChatOptions(temperature=0.1, max_tokens=3)
        runtime.submit(ONE, Turn((*first_turn.messages, said, *first_turn.messages), options))
        await log.wait_answers(2)
        [session] = backend.fleets[0].sessions
        first, second = session.requests
        assert (first.seed, second.seed) == (40, 41)
        assert first.sampling == SETTINGS.sampling
        assert second.sampling == SamplingSettings(temperature=0.1)
        assert (second.max_tokens, second.stop_strings) == (3, ("END",))
        assert (first.max_tokens, first.stop_strings, first.stop_ids) == (9, ("END",), frozenset({2}))
        assert first.token_ids == (1005,)
        assert second.token_ids == (1005, 0, 1, 2, 1005)  # the reply as the ids that were generated


async def test_another_try_takes_another_seed_and_notes_reach_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend()
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, dataclasses.replace(asking("a", "b", "c", "d", "e"), another=True))
        assert (await log.wait_answers(1)).notes == ("a note",)
        assert backend.fleets[0].sessions[0].requests[0].seed not in range(40, 50)


async def test_snapshots_tell_the_speed_of_every_chat(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(50)], pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        runtime.submit(TWO, asking("hi"))
        await log.wait_for(
            lambda event: isinstance(event, SnapshotTaken) and sorted(event.speeds.values()) == [10.0, 20.0]
        )


async def test_without_a_seed_every_reply_has_another(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    settings = GenerationSettings(SamplingSettings(), seed=None, max_tokens=9, stop_strings=())
    async with serving(backend, settings=settings) as (runtime, log):
        await log.wait_ready()
        for turn in range(2):
            runtime.submit(ONE, asking("hello"))
            await log.wait_answers(turn + 1)
        first, second = backend.fleets[0].sessions[0].requests
        assert first.seed != second.seed
        assert 0 <= first.seed < 2**63


async def test_stop_keeps_the_text_and_the_turn(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(100)], pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        await log.wait_for(lambda event: isinstance(event, TextArrived))
        runtime.stop(ONE)
        answer = await log.wait_answers(1)
        assert answer.finish_reason is FinishReason.CANCELLED
        assert answer.text == log.text(ONE) != ""
        assert len(answer.token_ids) == len(answer.text.split())


async def test_stop_right_after_submit_is_not_lost(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        runtime.stop(ONE)
        answer = await log.wait_answers(1)
        assert answer.finish_reason is FinishReason.CANCELLED
        assert answer.text == ""
        runtime.submit(ONE, asking("again"))
        assert (await log.wait_answers(2)).finish_reason is FinishReason.STOP


async def test_a_prompt_that_cannot_be_asked_ends_its_reply_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend()
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking(" "))
        answer = await log.wait_answers(1)
        assert answer.error == ("the prompt is empty", "type something")
        runtime.submit(ONE, asking("hello"))
        assert (await log.wait_answers(2)).finish_reason is FinishReason.STOP
        assert not any(isinstance(event, RuntimeFailed) for event in log)


async def test_chats_are_apart_and_a_closed_one_frees_its_cells(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(50)], pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        runtime.submit(TWO, asking("hi"))
        await log.wait_for(lambda event: isinstance(event, TextArrived))
        runtime.close_chat(ONE)
        assert (await log.wait_answers(1)).finish_reason is FinishReason.CANCELLED
        assert (await log.wait_answers(1, TWO)).finish_reason is FinishReason.STOP
        closed = {session.requests[0].token_ids: session.closed for session in backend.fleets[0].sessions}
        assert closed == {(1005,): True, (1002,): False}
        runtime.close_chat(ONE)
        runtime.stop(ONE)


async def test_a_failed_build_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend(
        faults=[BuildError("no space is left", hint="free some"), OSError(28, "No space", "x")]
    )
    async with serving(backend) as (runtime, log):
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))
        assert log[-1] == RuntimeFailed("no space is left", "free some")
        runtime.submit(ONE, asking("hello"))
        assert (await log.wait_answers(1)).error == (
            "the fleet is not ready",
            "wait until it is, then send again",
        )
        log.clear()
        runtime.retry()
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))
        assert log[-1] == RuntimeFailed("No space: x", "")
        runtime.retry()
        await log.wait_ready()


async def test_a_lost_stage_ends_the_replies_and_the_chat_goes_on_after_retry(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(20)], pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        await log.wait_for(lambda event: isinstance(event, TextArrived))
        backend.fleets[0].fail()
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))
        [answer] = log.answers()
        assert answer.finish_reason is FinishReason.ERROR
        assert answer.text == log.text(ONE) != ""
        assert isinstance(log[-2], SnapshotTaken)
        assert log[-1] == RuntimeFailed("stage 1 is lost", "start it again")
        assert backend.closed == 1

        runtime.retry()
        await log.wait_ready(2)
        runtime.submit(ONE, asking("go on"))
        await log.wait_answers(2)
        [session] = backend.fleets[1].sessions
        assert session.requests[0].token_ids == (1002, 1002)


async def test_an_idle_fleet_that_fails_is_noticed(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend()
    async with serving(backend) as (_, log):
        await log.wait_ready()
        backend.fleets[0].fail()
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))


async def test_a_bug_ends_in_one_line_and_the_reply_is_finished(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend()
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        backend.fleets[0].bug = ValueError("wrong")
        runtime.submit(ONE, asking("hello"))
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))
        assert (await log.wait_answers(1)).finish_reason is FinishReason.ERROR
        failed = next(event for event in log if isinstance(event, RuntimeFailed))
        assert failed.message == "unexpected ValueError: wrong"


async def test_a_saturated_chain_sends_text_four_times_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(200)], pace=0.01)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        for chat in (ONE, TWO):
            runtime.submit(chat, asking("hello"))
        await log.wait_answers(1)
        await log.wait_answers(1, TWO)
        pieces = [event for event in log if isinstance(event, TextArrived) and event.chat == ONE]
        assert 6 <= len(pieces) <= 10  # two seconds of text


async def test_another_model_is_served_and_replies_under_way_end_with_their_text(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backend = FakeBackend(script=[f"w{number}" for number in range(20)], pace=0.1)
    async with serving(backend) as (runtime, log):
        await log.wait_ready()
        runtime.submit(ONE, asking("hello"))
        await log.wait_for(lambda event: isinstance(event, TextArrived))
        runtime.switch("Other-2M")
        assert (await log.wait_answers(1)).finish_reason is FinishReason.CANCELLED
        await log.wait_ready(2)
        assert FleetReady("Other-2M", CONTEXT, OTHER_CONFIGURED) in log
        assert backend.closed == 1
        assert not any(isinstance(event, RuntimeFailed) for event in log)
        runtime.submit(ONE, asking("hello"))
        await log.wait_answers(2)
        request = backend.fleets[1].sessions[0].requests[0]
        assert (request.seed, request.max_tokens, request.sampling.temperature) == (7, 5, 0.9)


async def test_another_model_after_a_failure_is_a_new_try(autojump_clock: trio.testing.MockClock) -> None:
    backend = FakeBackend(faults=[BuildError("no space is left")])
    async with serving(backend) as (runtime, log):
        await log.wait_for(lambda event: isinstance(event, RuntimeFailed))
        runtime.switch("Other-2M")
        await log.wait_ready()
        assert FleetReady("Other-2M", CONTEXT, OTHER_CONFIGURED) in log
