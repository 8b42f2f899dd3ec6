"""One chat on the runtime's side: its session and its reply under way. Pure trio."""

from __future__ import annotations

import dataclasses
import secrets
from contextlib import suppress
from dataclasses import dataclass

import trio

from fleetchat.app.backend import ChatModel, OpenFleet, Session
from fleetchat.app.events import ChatNumber, PrefillProgressed, ReplyFinished, Report, TextArrived
from fleetchat.app.explain import explained
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.turn import Turn
from fleetchat.errors import FleetchatError, FleetError
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How replies are drawn. `seed` None takes 63 random bits a reply."""

    sampling: SamplingSettings
    seed: int | None
    max_tokens: int
    stop_strings: tuple[str, ...]

    def with_options(self, options: ChatOptions) -> GenerationSettings:
        """With what one chat sets for itself."""
        own = {
            name: value
            for name in ("temperature", "top_p", "top_k", "repetition_penalty")
            if (value := getattr(options, name)) is not None
        }
        return dataclasses.replace(
            self,
            sampling=dataclasses.replace(self.sampling, **own),
            seed=self.seed if options.seed is None else options.seed,
            max_tokens=options.max_tokens or self.max_tokens,
        )

    def shown_with(self, options: ChatOptions) -> ChatOptions:
        """These settings as what a chat may set, added to the options of the prompt."""
        return dataclasses.replace(
            options, **dataclasses.asdict(self.sampling), seed=self.seed, max_tokens=self.max_tokens
        )

    def seed_of(self, turn: Turn) -> int:
        """Turn t takes the seed plus t; without a seed, and for another try, 63 random bits."""
        if self.seed is None or turn.another:
            return secrets.randbits(63)
        return (self.seed + turn.number) % (1 << 63)


def empty_answer(reason: FinishReason, *, seed: int = 0, error: tuple[str, str] | None = None) -> Answer:
    """A reply of which no token came."""
    return Answer(
        text="",
        token_ids=(),
        finish_reason=reason,
        seed=seed,
        prompt_tokens=0,
        prompt_tokens_cached=0,
        ttft_ms=0.0,
        tokens_per_s=0.0,
        error=error,
    )


def failed_answer(message: str, hint: str | None) -> Answer:
    """A reply that ended by an error before the fleet could say so itself."""
    return empty_answer(FinishReason.ERROR, error=(message, hint or ""))


class ChatTask:
    """Draws the replies of one chat, one after the other, and reports text in pieces."""

    def __init__(self, number: ChatNumber, settings: GenerationSettings, report: Report) -> None:
        self.number = number
        self.settings = settings
        self._report = report
        self._session: Session | None = None
        self._turn_lock = trio.Lock()
        self._stopped = False
        self._wanted = 0  # replies that were begun and have not ended
        self._unsent_text: list[str] = []
        self._unsent_prefill: tuple[int, int] | None = None

    @property
    def session_number(self) -> int | None:
        """What snapshots call this chat; None while it holds no session."""
        return self._session.number if self._session is not None else None

    @property
    def busy(self) -> bool:
        """A reply is wanted, or being drawn."""
        return self._wanted > 0

    def begin(self) -> None:
        """`answer` is about to be called; a `stop` from now on is meant for it."""
        self._stopped = False
        self._wanted += 1

    async def answer(self, turn: Turn, model: ChatModel, fleet: OpenFleet) -> None:
        """Draw one reply; the last event is always ReplyFinished, whatever goes wrong.

        A failed fleet is noticed by the runtime, so our own errors end this reply only.
        """
        try:
            async with self._turn_lock:
                await self._answer(turn, model, fleet)
        finally:
            self._wanted -= 1

    async def _answer(self, turn: Turn, model: ChatModel, fleet: OpenFleet) -> None:
        settings = self.settings.with_options(turn.options)
        try:
            prompt = model.render(turn, context=fleet.context, max_tokens=settings.max_tokens)
        except FleetchatError as error:
            self._finish(failed_answer(error.message, error.hint))
            return
        answer = failed_answer("the fleet went away", "start it again; the chat is kept")
        try:
            answer = await self._generate(prompt.ids, settings, turn, model, fleet)
        except FleetchatError as error:
            answer = failed_answer(error.message, error.hint)
        except Exception as error:
            answer = failed_answer(*explained(error))
            raise
        finally:
            self._finish(dataclasses.replace(answer, notes=(*prompt.notes, *answer.notes)))

    async def _generate(
        self,
        token_ids: tuple[int, ...],
        settings: GenerationSettings,
        turn: Turn,
        model: ChatModel,
        fleet: OpenFleet,
    ) -> Answer:
        seed = settings.seed_of(turn)
        if self._stopped:
            return empty_answer(FinishReason.CANCELLED, seed=seed)
        if self._session is None:
            self._session = fleet.new_session()
        request = GenerationRequest(
            token_ids=token_ids,
            sampling=settings.sampling,
            seed=seed,
            max_tokens=settings.max_tokens,
            stop_ids=model.stop_ids,
            stop_strings=settings.stop_strings,
        )
        return await self._session.generate(
            request, model.decoder(), on_text=self._unsent_text.append, on_prefill=self._take_prefill
        )

    def _take_prefill(self, done: int, total: int) -> None:
        self._unsent_prefill = (done, total)

    def flush(self) -> None:
        """Report what came since the last call."""
        if self._unsent_prefill is not None:
            self._report(PrefillProgressed(self.number, *self._unsent_prefill))
            self._unsent_prefill = None
        if text := "".join(self._unsent_text):
            self._unsent_text.clear()
            self._report(TextArrived(self.number, text))

    def _finish(self, answer: Answer) -> None:
        self.flush()
        self._report(ReplyFinished(self.number, answer))

    def stop(self) -> None:
        """End the reply under way; its text is kept."""
        self._stopped = True
        if self._session is not None:
            self._session.stop()

    async def wait_idle(self) -> None:
        """Until no reply is under way."""
        async with self._turn_lock:
            return

    def forget_session(self) -> None:
        """The fleet is gone: the next prompt is fed to a new session from the start."""
        self._session = None

    async def close(self) -> None:
        """Wait for the reply under way, then free the session's cells."""
        async with self._turn_lock:
            session, self._session = self._session, None
            if session is not None:
                with suppress(FleetError):  # the fleet is gone, and the cells with it
                    await session.close()
