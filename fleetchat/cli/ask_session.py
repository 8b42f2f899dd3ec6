"""Asking the planned turns of an open fleet: conversations at once, the turns of each in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from fleetchat.chat.sanitise import Sanitiser
from fleetchat.cli.ask_order import AnswerStream, OrderedAnswers
from fleetchat.cli.ask_output import AnswerWriter, Progress
from fleetchat.cli.ask_report import Answered, finish_note
from fleetchat.cli.ask_turns import turn_seed
from fleetchat.errors import FleetchatError, FleetError
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest, SamplingSettings
from fleetchat.fleet.telemetry import Answer, FinishReason
from fleetchat.transport.tasks import open_tasks

FINAL = {FinishReason.CANCELLED, FinishReason.ERROR}  # endings after which no further turn is asked


class Conversation(Protocol):
    """Turns in, token ids out (fleetchat.chat.conversation)."""

    def ask(self, prompt: str) -> tuple[int, ...]: ...

    def answered(self, text: str, token_ids: tuple[int, ...]) -> None: ...


class Session(Protocol):
    """One conversation's state on a fleet."""

    def stop(self) -> None: ...


SessionType = TypeVar("SessionType", bound=Session)


class OpenFleet(Protocol[SessionType]):
    """The part of `fleet.coordinator.Fleet` that is used here."""

    @property
    def places(self) -> int:
        """Sessions that it can serve at once."""
        ...

    def new_session(self) -> SessionType: ...

    async def generate(
        self,
        session: SessionType,
        request: GenerationRequest,
        decoder: TextDecoder,
        *,
        on_text: Callable[[str], None],
        on_prefill: Callable[[int, int], None],
    ) -> Answer: ...

    async def close_session(self, session: SessionType) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """What holds for every reply. `seed` None takes random ones."""

    sampling: SamplingSettings
    seed: int | None
    max_tokens: int
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    context: int  # positions
    new_decoder: Callable[[], TextDecoder]

    def request(self, prompt_ids: tuple[int, ...], turn: int) -> GenerationRequest:
        """The request for a turn, counted from 0."""
        return GenerationRequest(
            token_ids=prompt_ids,
            sampling=self.sampling,
            seed=turn_seed(self.seed, turn),
            max_tokens=self.max_tokens,
            stop_ids=self.stop_ids,
            stop_strings=self.stop_strings,
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """A conversation whose first prompt is rendered, so that a wrong one is told before a fleet starts."""

    conversation: Conversation
    first_ids: tuple[int, ...]
    turns: tuple[str, ...]


def open_conversations(plan: Sequence[tuple[str, ...]], new: Callable[[], Conversation]) -> list[Opened]:
    """One conversation for each entry of the plan. Raises PromptError."""
    opened = []
    for turns in plan:
        conversation = new()
        opened.append(Opened(conversation, conversation.ask(turns[0]), turns))
    return opened


class Asking(Generic[SessionType]):
    """Asks everything once. `answers` grows; `failure` is the first thing that failed."""

    def __init__(
        self,
        fleet: OpenFleet[SessionType],
        settings: ReplySettings,
        progress: Progress,
        writer: AnswerWriter | None,
    ) -> None:
        """`writer` None streams nothing."""
        self._fleet = fleet
        self._settings = settings
        self._progress = progress
        self._writer = writer
        self._running: list[SessionType] = []
        self._speaking = 0  # replies of which something is, or may be, on the screen already
        self._stopped = False
        self.answers: list[Answered] = []
        self.failure: FleetchatError | None = None

    def stop(self) -> None:
        """End the running replies with their text kept, and ask no more."""
        self._stopped = True
        for session in self._running:
            session.stop()

    async def run(self, conversations: Sequence[Opened]) -> None:
        """Ask everything, as many conversations at once as the fleet has places, until the end or `stop`.

        A conversation that fails does not keep the others from going on.
        """
        places = trio.CapacityLimiter(max(1, self._fleet.places))
        order = OrderedAnswers(self._writer, len(conversations))
        async with open_tasks() as tasks:
            for number, opened in enumerate(conversations):
                await places.acquire_on_behalf_of(number)
                tasks.start_soon(self._converse_in_turn, number, opened, order, places)
        self.answers.sort(key=lambda answered: (answered.prompt, answered.turn))
        self._progress.clear()

    async def _converse_in_turn(
        self, number: int, opened: Opened, order: OrderedAnswers, places: trio.CapacityLimiter
    ) -> None:
        stream = order.stream(number)
        try:
            if not self._stopped:
                await self._converse(number, opened, stream)
        except FleetchatError as failure:
            self._note_failure(failure, stream)
        finally:
            stream.end()
            places.release_on_behalf_of(number)

    async def _converse(self, number: int, opened: Opened, stream: AnswerStream) -> None:
        session = self._fleet.new_session()
        self._running.append(session)
        try:
            for turn, text in enumerate(opened.turns):
                prompt_ids = opened.first_ids if turn == 0 else opened.conversation.ask(text)
                answer = await self._reply(session, self._settings.request(prompt_ids, turn), stream)
                self.answers.append(Answered(number, turn, answer))
                self._say_how_it_ended(answer, stream)
                if self._stopped or answer.finish_reason in FINAL:
                    break
                opened.conversation.answered(answer.text, answer.token_ids)
        finally:
            self._running.remove(session)
            await self._fleet.close_session(session)

    async def _reply(self, session: SessionType, request: GenerationRequest, stream: AnswerStream) -> Answer:
        sanitiser = Sanitiser()
        stream.begin_answer()
        speaks = False

        def show(text: str) -> None:
            nonlocal speaks
            if not speaks:
                speaks = True
                self._speaking += 1
                self._progress.clear()
            stream.put(sanitiser.push(text))

        try:
            answer = await self._fleet.generate(
                session, request, self._settings.new_decoder(), on_text=show, on_prefill=self._show_prefill
            )
            if not speaks:
                self._progress.clear()  # what was shown of its prompt: no word of an answer took its place
            stream.end_answer()
            if self._writer is not None:
                await self._writer.flush()
        finally:
            self._speaking -= speaks
        return answer

    def _show_prefill(self, done: int, total: int) -> None:
        """While an answer is being written, its line is no place for anything else."""
        if self._writer is None or (not self._speaking and self._writer.idle):
            self._progress.passing(f"reading the prompt: {done:,} of {total:,} tokens")

    def _say_how_it_ended(self, answer: Answer, stream: AnswerStream) -> None:
        said = [f"note: {note}" for note in answer.notes]
        if (ending := finish_note(answer, context=self._settings.context)) is not None:
            said.append(ending)
        for line in said:
            stream.then(partial(self._progress.say, line))
        if answer.finish_reason is FinishReason.ERROR:
            message, hint = answer.error or ("the reply failed", "")
            self._note_failure(FleetError(message, hint=hint or None), stream)

    def _note_failure(self, failure: FleetchatError, stream: AnswerStream) -> None:
        """The first failure is raised in the end; what fails after it is said below its answer."""
        if self.failure is None:
            self.failure = failure
        else:
            stream.then(partial(self._progress.say, f"error: {failure.message}"))
