"""What the runtime stands on, as protocols: `local_backend.py` has the real parts, tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleetchat.chat.options import ChatOptions
from fleetchat.chat.overflow import FittedPrompt
from fleetchat.chat.turn import Turn
from fleetchat.errors import FleetError
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.telemetry import Answer, FleetSnapshot

if TYPE_CHECKING:
    from fleetchat.app.chat_task import GenerationSettings


@dataclass(frozen=True, slots=True)
class ProposedCut:
    """A table in words; `cut` has first and last layer of each stage, nothing when it is right as it is."""

    lines: tuple[str, ...]
    cut: tuple[tuple[int, int], ...]


OnBuild = Callable[[str, int, int], None]  # step, done, total (0 = unknown)
OnStart = Callable[[str], None]  # one line in words
OnText = Callable[[str], None]
OnPrefill = Callable[[int, int], None]  # tokens done, total


class ChatModel(Protocol):
    """A built model: what is needed to turn messages into tokens and back."""

    @property
    def name(self) -> str: ...

    @property
    def stop_ids(self) -> frozenset[int]: ...

    @property
    def configured(self) -> ChatOptions:
        """Of what a chat may set: the parts that belong to the prompt, `system` and `overflow`."""

    def render(self, turn: Turn, *, context: int, max_tokens: int) -> FittedPrompt:
        """The prompt of a turn for a fleet that holds `context` tokens. Raises PromptError."""

    def decoder(self) -> TextDecoder: ...


class Session(Protocol):
    """One conversation's state on the fleet."""

    @property
    def number(self) -> int:
        """The name of the session in snapshots."""

    async def generate(
        self, request: GenerationRequest, decoder: TextDecoder, *, on_text: OnText, on_prefill: OnPrefill
    ) -> Answer:
        """Draw a reply. Raises FleetError when the fleet is gone."""

    def stop(self) -> None:
        """End the running `generate`; it returns what it has."""

    async def close(self) -> None:
        """Free the session's cells."""


class OpenFleet(Protocol):
    """A fleet whose stages are ready."""

    @property
    def context(self) -> int:
        """Tokens that a chat may hold."""

    def new_session(self) -> Session: ...

    def snapshot(self) -> FleetSnapshot: ...

    async def propose_cut(self) -> ProposedCut:
        """Another cut on the same peers, from what they were measured. Raises FleetchatError."""

    async def wait_failed(self) -> FleetError:
        """Wait until the fleet fails, also when nobody uses it; what it failed of."""


class Backend(Protocol):
    """Where model and fleet come from. Every failure is a FleetchatError."""

    def choose(self, model: str) -> GenerationSettings:
        """Serve this model from the next `prepare` on; how its replies are drawn. Raises FleetchatError."""

    async def prepare(self, on_build: OnBuild) -> ChatModel:
        """Build what is missing and load the tokenizer."""

    def open_fleet(self, model: ChatModel, on_start: OnStart) -> AbstractAsyncContextManager[OpenFleet]: ...
