"""Look the continuation up first; ask the model when there is nothing to look up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetchat.fleet.draft.interface import ChooseDepth, Drafter, Proposal, ShouldStop, never
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.wire.frames import Draw


class CombinedDrafter:
    """Implements `interface.Drafter`: `first` is free; `second` is asked when `first` sends no draft."""

    name = "ngram+model"

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self.first = first
        self.second = second

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        free = self.first.propose(session, committed, depth, draw, should_stop)
        if free.ids:
            return free
        drafted = self.second.propose(session, committed, depth, draw, should_stop)
        return replace(drafted, guesses=drafted.guesses + free.guesses)

    def forget(self, session: int) -> None:
        self.first.forget(session)
        self.second.forget(session)


def what_is_left(failed: Drafter) -> Drafter:
    """What to go on with after `failed` raised DrafterFailed: looking up cannot fail, a model can."""
    return failed.first if isinstance(failed, CombinedDrafter) else NoDrafter()
