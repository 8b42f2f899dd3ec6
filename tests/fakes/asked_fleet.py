"""A fleet for the tests of `ask`: each reply is the next of a list, spoken token by token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.telemetry import Answer, FinishReason

Wait = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Script:
    """One reply. With `until_stopped` it does not end by itself.

    It begins after `before`, and goes on after its first word when `pause` is over.
    """

    words: Sequence[str]
    finish_reason: FinishReason = FinishReason.STOP
    until_stopped: bool = False
    error: tuple[str, str] | None = None
    before: Wait = trio.lowlevel.checkpoint
    pause: Wait = trio.lowlevel.checkpoint


class ScriptedSession:
    def __init__(self, number: int) -> None:
        self.number = number
        self.stopped = trio.Event()

    def stop(self) -> None:
        self.stopped.set()


@dataclass
class AskedFleet:
    """Notes every request with the number of its session."""

    scripts: list[Script]
    requests: list[tuple[int, GenerationRequest]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    speaking: trio.Event = field(default_factory=trio.Event)
    places: int = 1
    _sessions: int = 0

    def new_session(self) -> ScriptedSession:
        self._sessions += 1
        return ScriptedSession(self._sessions - 1)

    async def generate(
        self,
        session: ScriptedSession,
        request: GenerationRequest,
        decoder: TextDecoder,
        *,
        on_text: Callable[[str], None],
        on_prefill: Callable[[int, int], None],
    ) -> Answer:
        self.requests.append((session.number, request))
        script = self.scripts.pop(0)
        await script.before()
        on_prefill(0, len(request.token_ids))
        for word in script.words:
            await trio.lowlevel.checkpoint()
            on_text(word)
            if word is script.words[0]:
                await script.pause()
        reason = script.finish_reason
        if script.until_stopped:
            self.speaking.set()
            await session.stopped.wait()
            reason = FinishReason.CANCELLED
        return Answer(
            text="".join(script.words),
            token_ids=tuple(range(100, 100 + len(script.words))),
            finish_reason=reason,
            seed=request.seed,
            prompt_tokens=len(request.token_ids),
            prompt_tokens_cached=0,
            ttft_ms=1.0,
            tokens_per_s=2.0,
            error=script.error,
        )

    async def close_session(self, session: ScriptedSession) -> None:
        await trio.lowlevel.checkpoint()
        self.closed.append(session.number)
