"""One conversation's token state on a chain (pure).

Between traversals the chain holds every committed token but the pending one. A session knows which
ids lie at which logical position on every stage, so stop, edit, regenerate and a rejected draft are
one operation: the next slice starts at a smaller `first`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetchat.engine.blocks import BlockManager
from fleetchat.ids import Rollback, SessionId

COMPARED_AT_ONCE = 256  # ids; whole blocks are compared at once, since this is done in every round


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are drawn: temperature 0 is arg max; top_p 1, top_k 0 and penalty 1 are off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Continue `token_ids`, the whole conversation so far."""

    token_ids: tuple[int, ...]
    sampling: SamplingSettings
    seed: int
    max_tokens: int
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...] = ()


def common_prefix(left: Sequence[int], right: Sequence[int], known: int = 0) -> int:
    """How many ids the two start with in common; `known` of them are known to be."""
    shorter = min(len(left), len(right))
    for start in range(min(known, shorter), shorter, COMPARED_AT_ONCE):
        stop = min(start + COMPARED_AT_ONCE, shorter)
        if list(left[start:stop]) != list(right[start:stop]):
            pairs = zip(left[start:stop], right[start:stop], strict=True)
            return start + next(index for index, (one, other) in enumerate(pairs) if one != other)
    return shorter


@dataclass(slots=True)
class ChainState:
    """What every stage holds of one session: `held[p]` is the id at logical position p.

    `physical` counts the cells taken on the stage, dead ones included. `blocks` counts for all sessions
    of the chain when cells lie in blocks; none is dead then. `confirmed` is the length that a RESULT said.
    `rollback` is how the stages take rows back.
    """

    session: SessionId
    held: list[int] = field(default_factory=list)
    physical: int = 0
    blocks: BlockManager[SessionId] | None = None
    confirmed: int = 0
    rollback: Rollback = Rollback.MASK
    _compared: Sequence[int] = ()  # what `held` was compared with last
    _agreed: int = 0  # ids that the two begin with in common

    @property
    def length(self) -> int:
        return len(self.held)

    def reusable(self, token_ids: Sequence[int]) -> int:
        """`first` of a slice that continues `token_ids`: at least one row is always fed.

        Whoever asks again with the same list has only appended to it: the rest is not compared again.
        """
        known = self._agreed if token_ids is self._compared else 0
        self._compared, self._agreed = token_ids, common_prefix(self.held, token_ids, known)
        return self.kept(min(self._agreed, len(token_ids) - 1))

    def kept(self, length: int) -> int:
        """How many of the first `length` ids stay: all, or none where nothing can be undone."""
        return 0 if self.rollback is Rollback.RESTART and length < self.length else length

    def feed(self, first: int, token_ids: Sequence[int]) -> int:
        """Note that a slice carries `token_ids` to positions `first`…; returns its `rollback`."""
        rollback = self.length - first
        if rollback < 0:
            raise ValueError(f"a gap: first {first} lies beyond the length {self.length}")
        self.truncate(first)
        self.held.extend(token_ids)
        self.physical += len(token_ids)
        if self.blocks is not None:
            self.blocks.append(self.session, len(token_ids))
        return rollback

    def confirm(self, length: int) -> None:
        """A RESULT said that every stage holds the first `length` ids."""
        self.confirmed = max(self.confirmed, min(length, self.length))

    def truncate(self, length: int) -> None:
        """Note that every stage truncated the session to `length`; at 0 it starts anew without dead cells."""
        del self.held[length:]
        self._agreed = min(self._agreed, length)
        self.confirmed = min(self.confirmed, length)
        if self.blocks is not None:
            self.blocks.truncate(self.session, length)
            self.physical = length
        elif not length or self.rollback is not Rollback.MASK:
            self.physical = length

    def share(self, source: ChainState, token_ids: Sequence[int]) -> None:
        """Note that this session, still empty, begins with the first cells of `source`: a FORK."""
        self.held, self._agreed = list(token_ids), 0
        self.physical = len(token_ids)
        if self.blocks is not None:
            self.blocks.fork(self.session, source.session, len(token_ids))

    @property
    def dead(self) -> int:
        return self.physical - self.length

    def compacted(self) -> None:
        """Note that every stage got rid of the session's dead cells."""
        self.physical = self.length
