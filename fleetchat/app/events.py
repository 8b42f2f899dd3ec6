"""What the runtime tells the screen, and what the screen may ask of the runtime.

Values only: neither Textual nor trio is imported here, so that both sides can. Every event of a
conversation carries its chat's number, so that late text of a closed chat is never shown in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol

from fleetchat.chat.options import ChatOptions
from fleetchat.chat.turn import Turn
from fleetchat.fleet.telemetry import Answer, FleetSnapshot

ChatNumber = NewType("ChatNumber", int)  # chosen by the screen, never reused while the program runs


@dataclass(frozen=True, slots=True)
class BuildProgressed:
    """The first run builds the shards. `total` 0 means that the end is not known."""

    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StartProgressed:
    """Peers are started, dialled, loaded: one line in words."""

    text: str


@dataclass(frozen=True, slots=True)
class FleetReady:
    """Prompts may be submitted. `context` is in tokens; `configured` is what holds unless a chat sets it."""

    model: str
    context: int
    configured: ChatOptions | None = None


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The newest state of the fleet; an older one that nobody looked at may be forgotten.

    `speeds` has the tokens/s of the chats that are being answered, `sessions` what the snapshot calls the
    chats that hold a session.
    """

    snapshot: FleetSnapshot
    speeds: Mapping[ChatNumber, float] = field(default_factory=dict)
    sessions: Mapping[ChatNumber, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PrefillProgressed:
    """Tokens of the prompt that the fleet has read so far."""

    chat: ChatNumber
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TextArrived:
    """The next piece of a reply, as the model wrote it: to be sanitised before it is shown."""

    chat: ChatNumber
    text: str


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The last event of a reply; all of its text was reported before."""

    chat: ChatNumber
    answer: Answer


@dataclass(frozen=True, slots=True)
class RuntimeFailed:
    """The fleet is down. Nothing happens until `retry`; every reply under way has been finished."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class CutProposed:
    """A table in words; `cut` has first and last layer of each stage, nothing when it is right as it is."""

    lines: tuple[str, ...]
    cut: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Something that the user asked for cannot be had, or what became of it."""

    text: str


RuntimeEvent = (
    BuildProgressed
    | StartProgressed
    | FleetReady
    | SnapshotTaken
    | PrefillProgressed
    | TextArrived
    | ReplyFinished
    | RuntimeFailed
    | CutProposed
    | Told
)

Report = Callable[[RuntimeEvent], None]


class RuntimeControl(Protocol):
    """The runtime as the screen sees it: every call returns at once, but `shutdown`."""

    def start(self, report: Report) -> None:
        """Begin; `report` is called from another thread."""

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        """Draw a reply in a chat; a new number opens a new chat."""

    def stop(self, chat: ChatNumber) -> None:
        """End the reply of a chat; its text is kept."""

    def close_chat(self, chat: ChatNumber) -> None:
        """Forget a chat and free its cells."""

    def models(self) -> Sequence[tuple[str, str]]:
        """Name and title of the models that are built. May read files; called from any thread."""

    def switch(self, model: str) -> None:
        """Serve another model; replies under way are stopped. `FleetReady` or `RuntimeFailed` follows."""

    def propose_cut(self) -> None:
        """Ask for another cut on the same peers. `CutProposed` or `Told` follows."""

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str:
        """Move to that cut; what to tell. Writes a file: call it from a thread. Raises FleetchatError."""

    def add_peer(self, address: str, name: str) -> str:
        """Let a peer serve a stage; as `write_cut`."""

    def remove_peer(self, which: str) -> str:
        """Let a peer go, by its address or name; as `write_cut`."""

    def retry(self) -> None:
        """Start the fleet again after `RuntimeFailed`."""

    def shutdown(self, timeout: float) -> bool:
        """End everything, waiting at most `timeout` seconds. True when nothing is left running."""
