"""What a drafter must do: guess the next tokens of a session, cheaply.

`propose` alone covers full acceptance, rollback, edit, cancel, recovery and other sessions' turns: a
drafter compares what it holds of a session with the committed ids, drops the rest, feeds what is new,
and then drafts. Whatever it answers, the text stays the same; a wrong draft costs time only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fleetchat.wire.frames import Draw


class DraftSource(StrEnum):
    NGRAM = "ngram"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class DraftKey:
    """What the acceptance of drafts is counted by.

    `confidence` is a bucket that means something to its source only: for `ngram` the least length of
    the matches in it, in tokens.
    """

    source: DraftSource
    confidence: int = 0


@dataclass(frozen=True, slots=True)
class Guess:
    """`ids` were expected to follow the committed ids, whether they were sent or not."""

    key: DraftKey
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """`ids` are to be verified; empty when there is nothing worth it.

    `guesses` has the full guess behind them, and others that come for free and were not sent: all are
    compared with what the chain draws. `caught_up` is how many rows a model had to feed before it could
    draft; it says how much of the time was not spent on drafting.
    """

    ids: tuple[int, ...] = ()
    guesses: tuple[Guess, ...] = ()
    caught_up: int = 0

    @property
    def source(self) -> DraftSource | None:
        return self.guesses[0].key.source if self.ids else None


NOTHING = Proposal()

ChooseDepth = Callable[[DraftKey], int]  # how many drafts are worth it, asked when the key is known
ShouldStop = Callable[[], bool]


def never() -> bool:
    return False


class Drafter(Protocol):
    """Calls come from one thread at a time; `forget` may come from any other."""

    @property
    def name(self) -> str:
        """As the option --drafter has it."""
        ...

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        """Drafts for the positions len(committed)…, at most as many as `depth` answers.

        `committed` has at least one id. `draw` is how the chain draws them: a drafter that has logits
        draws the same way. When `should_stop` turns true, what was drafted so far is returned.
        Raises DrafterFailed, after which the drafter is not to be used again.
        """
        ...

    def forget(self, session: int) -> None:
        """Free what is held of a session. Unknown sessions are ignored."""
        ...


def at_most(depth: ChooseDepth, most: int) -> ChooseDepth:
    """`depth`, bounded by the room that is left."""
    return lambda key: max(0, min(most, depth(key)))
