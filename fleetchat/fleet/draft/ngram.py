"""Prompt lookup: what followed the last tokens when they stood in this session before."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetchat.fleet.draft.following import Following
from fleetchat.fleet.draft.interface import (
    NOTHING,
    ChooseDepth,
    DraftKey,
    DraftSource,
    Guess,
    Proposal,
    ShouldStop,
    never,
)
from fleetchat.fleet.draft.ngram_index import NgramIndex
from fleetchat.wire.frames import Draw

CAPACITY = 65_536  # tokens of all sessions together: about 25 MB
CONFIDENCES = (2, 3, 4, 6, 9, 16)  # least length of a match in each bucket


def confidence(length: int) -> int:
    """The bucket of a match of `length` >= 2 tokens."""
    return CONFIDENCES[bisect_right(CONFIDENCES, length) - 1]


@dataclass(slots=True)
class _Session:
    index: NgramIndex = field(default_factory=NgramIndex)
    following: Following = field(default_factory=Following)


class NgramDrafter:
    """Implements `interface.Drafter`. The longest match wins, the most recent among equals."""

    name = "ngram"

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._sessions: OrderedDict[int, _Session] = OrderedDict()

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        index = self._followed(session, committed, draw)
        length, start = index.longest_match()
        if not length:
            return NOTHING
        key = DraftKey(DraftSource.NGRAM, confidence(length))
        count = max(0, depth(key))
        # One more than is sent: when all are accepted, the token drawn after them judges it for free.
        ids = index.continuation(start, count + 1)
        return Proposal(ids[:count], (Guess(key, ids),))

    def forget(self, session: int) -> None:
        self._sessions.pop(session, None)

    def _followed(self, session: int, committed: Sequence[int], draw: Draw) -> NgramIndex:
        """The session's index, with exactly the committed ids in it."""
        held = self._sessions.get(session) or self._sessions.setdefault(session, _Session())
        self._sessions.move_to_end(session)
        index = held.index
        index.truncate(held.following.common(index.ids, committed, draw))
        for token in committed[len(index) :]:
            index.append(token)
        self._make_room()
        return index

    def _make_room(self) -> None:
        """Forget the sessions used least recently; the present one stays whatever its length."""
        total = sum(len(held.index) for held in self._sessions.values())
        while total > self._capacity and len(self._sessions) > 1:
            _, oldest = self._sessions.popitem(last=False)
            total -= len(oldest.index)
