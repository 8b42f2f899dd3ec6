"""Drafters that know the right answer, and make of it what their name says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetchat.errors import DrafterFailed
from fleetchat.fleet.draft.interface import (
    NOTHING,
    ChooseDepth,
    Drafter,
    DraftKey,
    DraftSource,
    Guess,
    Proposal,
    ShouldStop,
    never,
)
from fleetchat.wire.frames import Draw

Oracle = Callable[[int, int], int]  # (session, position) -> the token that the chain draws there


class _Knowing:
    """Drafts `self._token(session, position)` for every position."""

    name = "fake"

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.calls = 0
        self.forgotten: list[int] = []

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        self.calls += 1
        key = DraftKey(DraftSource.MODEL)
        start = len(committed)
        ids = tuple(self._token(session, position) for position in range(start, start + depth(key)))
        return Proposal(ids, (Guess(key, ids),)) if ids else NOTHING

    def forget(self, session: int) -> None:
        self.forgotten.append(session)

    def _token(self, session: int, position: int) -> int:
        return self._oracle(session, position)


class RightDrafter(_Knowing):
    """All its drafts are accepted."""

    name = "right"


class WrongDrafter(_Knowing):
    """None of its drafts is accepted. `vocabulary` >= 2."""

    name = "wrong"

    def __init__(self, oracle: Oracle, vocabulary: int) -> None:
        super().__init__(oracle)
        self._vocabulary = vocabulary

    def _token(self, session: int, position: int) -> int:
        return (self._oracle(session, position) + 1) % self._vocabulary


class LyingDrafter(WrongDrafter):
    """Wrong at every third position, and answers with `beyond` more drafts than it was asked for."""

    name = "lying"

    def __init__(self, oracle: Oracle, vocabulary: int, beyond: int = 0) -> None:
        super().__init__(oracle, vocabulary)
        self._beyond = beyond

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        return super().propose(session, committed, lambda key: depth(key) + self._beyond, draw, should_stop)

    def _token(self, session: int, position: int) -> int:
        right = self._oracle(session, position)
        return (right + 1) % self._vocabulary if position % 3 == 0 else right


class FailingDrafter:
    """Drafts as `inner` does, `proposals` times; then it fails, and counts the calls after that."""

    name = "failing"

    def __init__(self, inner: Drafter, proposals: int) -> None:
        self._inner = inner
        self._left = proposals
        self.calls_after_failure = 0
        self._failed = False

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        self.calls_after_failure += self._failed
        if self._left == 0:
            self._failed = True
            raise DrafterFailed("the draft model failing failed: out of memory")
        self._left -= 1
        return self._inner.propose(session, committed, depth, draw, should_stop)

    def forget(self, session: int) -> None:
        self._inner.forget(session)
