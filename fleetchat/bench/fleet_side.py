"""Our side of a pair: sessions of an open fleet that reply to prompts, one after the other, all the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import trio

from fleetchat.bench.replies import ReplyTime, timed_reply
from fleetchat.bench.subject import Subject
from fleetchat.bench.workloads import LoopWatch, turned
from fleetchat.errors import FleetError
from fleetchat.fleet.coordinator import Fleet, FleetSession
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason

GREEDY = SamplingSettings(temperature=0.0)


class TimedDecoder:
    """Notes when each token is committed, and calls `on_loop` when the reply begins to repeat itself."""

    def __init__(self, decoder: TextDecoder, on_loop: Callable[[], None] = lambda: None) -> None:
        self._decoder = decoder
        self._on_loop = on_loop
        self._watch = LoopWatch()
        self.times: list[float] = []
        self.token_ids: list[int] = []

    def push(self, token_id: int) -> str:
        self.times.append(time.perf_counter())
        self.token_ids.append(token_id)
        if self._watch.push(token_id):
            self._on_loop()
        return self._decoder.push(token_id)

    def finish(self) -> str:
        return self._decoder.finish()


class FleetSide:
    """Replies of `sessions` sessions at once, each session busy until the time is over."""

    def __init__(self, fleet: Fleet, subject: Subject, *, sessions: int, max_tokens: int) -> None:
        self._fleet = fleet
        self._subject = subject
        self._sessions = sessions
        self._max_tokens = max_tokens
        self.on_answer: Callable[[Answer], None] = lambda answer: None

    async def replies(self, prompts: Sequence[tuple[int, ...]], seconds: float) -> list[ReplyTime]:
        """What was said in `seconds`; session i begins with prompt i and takes every n-th from there."""
        done: list[ReplyTime] = []
        async with trio.open_nursery() as nursery:
            deadline = trio.current_time() + seconds
            for index in range(self._sessions):
                own = turned(prompts, index)[:: self._sessions] or [prompts[0]]
                nursery.start_soon(self._converse, own, deadline, done)
        return done

    async def reply(
        self, prompt: tuple[int, ...], *, stop_at_loop: bool, deadline: float = math.inf
    ) -> ReplyTime | None:
        """One reply in a session of its own, at most until `deadline` (trio clock)."""
        session = self._fleet.new_session()
        decoder = TimedDecoder(
            self._subject.chat_format.decoder(), session.stop if stop_at_loop else lambda: None
        )
        request = GenerationRequest(prompt, GREEDY, 0, self._max_tokens, self._subject.stop_ids)
        started = time.perf_counter()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_at, session, deadline)
                answer = await self._fleet.generate(session, request, decoder, on_text=lambda text: None)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._fleet.close_session(session)
        require_success(answer)
        self.on_answer(answer)
        return timed_reply(started, decoder.times, decoder.token_ids)

    async def _converse(
        self, prompts: Sequence[tuple[int, ...]], deadline: float, done: list[ReplyTime]
    ) -> None:
        number = 0
        while trio.current_time() < deadline:
            prompt = prompts[number % len(prompts)]
            reply = await self.reply(prompt, stop_at_loop=True, deadline=deadline)
            if reply is not None:
                done.append(reply)
            number += 1


async def _stop_at(session: FleetSession, deadline: float) -> None:
    await trio.sleep_until(deadline)
    session.stop()


def require_success(answer: Answer) -> None:
    """A failed reply has no speed. Raises FleetError."""
    if answer.finish_reason is FinishReason.ERROR:
        message, hint = answer.error or ("a reply failed", "")
        raise FleetError(message, hint=hint or None)
