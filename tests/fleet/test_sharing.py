"""Prompts that begin alike are computed once, also when they come at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from fleetchat.engine.interface import EngineSlice
from fleetchat.fleet.batching import PIPELINED_CHUNK
from fleetchat.fleet.coordinator import FleetSession
from fleetchat.fleet.sharing import WORTH_A_FORK, SharedPrompts
from fleetchat.fleet.telemetry import Answer, FinishReason
from tests.fakes.chain import Letters, request
from tests.fakes.paged_fleet import Paged, paged_fleet
from tests.peer.coordinator import wait_for

SYSTEM = list(range(40, 60))
ENDS = ([1], [2, 3], [4, 4, 4], [5])


class Gate:
    """Holds the first pass of a stage until it is opened."""

    def __init__(self, paged: Paged) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._shut = True
        self.reached, self._open = trio.Event(), trio.Event()
        self.rows = 0
        paged.engines[0].before_run = self._pass

    def open(self) -> None:
        self._open.set()

    def _pass(self, slices: Sequence[EngineSlice]) -> None:
        self.rows += sum(len(slice_.token_ids) for slice_ in slices)
        if self._shut:
            self._shut = False
            trio.from_thread.run_sync(self.reached.set, trio_token=self._token)
            trio.from_thread.run(self._open.wait, trio_token=self._token)


@pytest.mark.trio
async def test_prompts_that_come_at_once_are_computed_once() -> None:
    async with paged_fleet() as paged:
        gate = Gate(paged)
        sessions = [paged.fleet.new_session() for _ in ENDS]
        answers: dict[int, Answer] = {}

        async def ask(number: int) -> None:
            answers[number] = await paged.ask(sessions[number], [*SYSTEM, *ENDS[number]], 3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            await gate.reached.wait()
            for number in (1, 2, 3):
                nursery.start_soon(ask, number)
            await wait_for(lambda: all(session.generation for session in sessions))
            await trio.testing.wait_all_tasks_blocked()
            assert paged.fleet.interleaver.active == {sessions[0].number}, (
                "nobody streams: it is not cut small"
            )
            gate.open()
        assert [answers[n].prompt_tokens_cached for n in range(4)] == [0, *[len(SYSTEM)] * 3]
        assert paged.fleet.holdings.forks == 3
        assert gate.rows == len(SYSTEM) + sum(map(len, ENDS)) + 4 * 2  # and two tokens each, fed again
        await paged.settled()


@pytest.mark.trio
async def test_who_waits_sees_what_the_first_has_read() -> None:
    seen: list[tuple[int, int]] = []
    async with paged_fleet() as paged:
        gate = Gate(paged)
        first, second = paged.fleet.new_session(), paged.fleet.new_session()

        async def ask_second() -> None:
            await paged.fleet.generate(
                second,
                request([*SYSTEM, 2], max_tokens=1),
                Letters(),
                on_text=lambda text: None,
                on_prefill=lambda done, total: seen.append((done, total)),
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(paged.ask, first, [*SYSTEM, 1], 1)
            await gate.reached.wait()
            nursery.start_soon(ask_second)
            await wait_for(lambda: seen == [(0, 21)])
            gate.open()
    assert seen == [(0, 21), (20, 21), (21, 21)]


@pytest.mark.trio
async def test_who_waits_goes_on_alone_when_the_first_is_stopped() -> None:
    async with paged_fleet() as paged:
        gate = Gate(paged)
        first, second = paged.fleet.new_session(), paged.fleet.new_session()
        answers: list[Answer] = []

        async def ask(session: FleetSession, prompt: list[int], *, right: bool = True) -> None:
            answers.append(await paged.ask(session, prompt, 3, right=right))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(first, [*SYSTEM, 1], right=False))
            await gate.reached.wait()
            nursery.start_soon(lambda: ask(second, [*SYSTEM, 2]))
            await trio.testing.wait_all_tasks_blocked()
            first.stop()
            gate.open()
        assert sorted(answer.finish_reason for answer in answers) == [
            FinishReason.CANCELLED,
            FinishReason.LENGTH,
        ]
        await paged.settled()


@pytest.mark.trio
async def test_who_waits_can_be_stopped() -> None:
    async with paged_fleet() as paged:
        gate = Gate(paged)
        first, second, third = (paged.fleet.new_session() for _ in range(3))
        outcomes: list[FinishReason] = []

        async def ask(session: FleetSession, *, right: bool) -> None:
            answer = await paged.ask(session, [*SYSTEM, 1], 3, right=right)
            outcomes.append(answer.finish_reason)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(first, right=True))
            await gate.reached.wait()
            nursery.start_soon(lambda: ask(second, right=False))
            nursery.start_soon(lambda: ask(third, right=True))
            await trio.testing.wait_all_tasks_blocked()
            second.stop()
            await wait_for(lambda: outcomes == [FinishReason.CANCELLED])
            gate.open()
        assert outcomes[1:] == [FinishReason.LENGTH, FinishReason.LENGTH]
        assert paged.fleet.holdings.forks == 1
        await paged.settled()


@pytest.mark.trio
async def test_a_failure_of_the_first_is_not_the_others() -> None:
    async with paged_fleet() as paged:
        gate = Gate(paged)
        paged.engines[0].mischief.faults = {0: ("exception", "out of luck")}
        first, second = paged.fleet.new_session(), paged.fleet.new_session()
        answers: dict[str, Answer] = {}

        async def ask(name: str, session: FleetSession, *, right: bool) -> None:
            answers[name] = await paged.ask(session, [*SYSTEM, 1], 3, right=right)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask("first", first, right=False))
            await gate.reached.wait()
            nursery.start_soon(lambda: ask("second", second, right=True))
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
        assert answers["first"].finish_reason is FinishReason.ERROR
        assert answers["second"].prompt_tokens_cached == 0
        await paged.settled()


@pytest.mark.parametrize(
    ("token_ids", "have", "coming", "waits"),
    [
        ([*SYSTEM, 1], 0, [*SYSTEM, 2, 3], True),
        ([*SYSTEM, 1], 0, [9, *SYSTEM], False),  # they do not begin alike
        ([*SYSTEM, 1], len(SYSTEM), [*SYSTEM, 2], False),  # it can be forked now
        ([*SYSTEM, *range(21)], 0, [*SYSTEM, 2], False),  # the lesser part of what is lacking
        ([*SYSTEM, *range(20)], 0, [*SYSTEM, 2], True),
        ([*range(WORTH_A_FORK), 1], 0, [*range(WORTH_A_FORK), 2], True),
        ([*range(WORTH_A_FORK - 1), 1], 0, [*range(WORTH_A_FORK - 1), 2], False),
        (SYSTEM, 0, SYSTEM, True),  # all but the row that is always fed
        ([*SYSTEM, 1], 0, [*SYSTEM, *[7] * 5000], False),  # a chunk of the other would take longer
        ([*range(PIPELINED_CHUNK // 2), 1], 0, [*range(PIPELINED_CHUNK // 2), *[7] * 5000], True),
    ],
)
def test_a_wait_must_spare_most_of_what_is_lacking(
    token_ids: list[int], have: int, coming: list[int], waits: bool
) -> None:
    prompts = SharedPrompts()
    assert not prompts.worth_waiting_for(1, token_ids, have)
    with prompts.filling(2, coming):
        assert prompts.worth_waiting_for(1, token_ids, have) is waits
        assert not prompts.worth_waiting_for(2, token_ids, have), "nobody waits for itself"
    assert not prompts.worth_waiting_for(1, token_ids, have)
