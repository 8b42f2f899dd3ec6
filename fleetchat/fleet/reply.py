"""The commit rule: token ids of one reply in, text and the reason to stop out (pure).

In order per token: stop id, stop string, maximum of tokens, emit. Text that could still become a
stop string is held back until it is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleetchat.fleet.telemetry import FinishReason


class TextDecoder(Protocol):
    """Turns ids into text, never half a character."""

    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


def undecided_suffix(text: str, stop_strings: tuple[str, ...]) -> int:
    """Length of the longest end of `text` that is a proper beginning of a stop string."""
    longest = 0
    for stop in stop_strings:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if stop.startswith(text[-size:]):
                longest = size
                break
    return longest


class Reply:
    """Collects one reply. `commit` returns the text that may be shown now.

    A token that stops the reply by its id is not part of it. At a stop string the text ends where
    the string begins, and only tokens whose whole text lies before it are kept.
    """

    def __init__(
        self,
        decoder: TextDecoder,
        *,
        stop_ids: frozenset[int],
        stop_strings: tuple[str, ...],
        max_tokens: int,
        room: int,
    ) -> None:
        """`room` is how many tokens fit into the context behind the prompt."""
        self._decoder = decoder
        self._stop_ids = stop_ids
        self._stop_strings = tuple(stop for stop in stop_strings if stop)
        self._max_tokens = max_tokens
        self._room = room
        self._decoded = ""
        self._shown = 0
        self._ends: list[int] = []  # length of the decoded text after each token
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        """All text committed so far, what is held back included."""
        return self._decoded

    @property
    def room_left(self) -> int:
        """Tokens that still fit into the context and under the maximum."""
        return min(self._max_tokens, self._room) - len(self.token_ids)

    def goes_on_after(self, token_ids: Sequence[int]) -> bool:
        """Whether it is certain, without their text, that these tokens do not end the reply."""
        return (
            not self._stop_strings
            and len(token_ids) < self.room_left
            and self._stop_ids.isdisjoint(token_ids)
            and self.finish_reason is None
        )

    def commit(self, token_id: int) -> str:
        """Take one token. Raises ValueError when the reply is finished already."""
        if self.finish_reason is not None:
            raise ValueError("the reply is finished")
        if token_id in self._stop_ids:
            return self._finish(FinishReason.STOP)
        self.token_ids.append(token_id)
        searched_from = max(0, len(self._decoded) - max(map(len, self._stop_strings), default=0))
        self._decoded += self._decoder.push(token_id)
        self._ends.append(len(self._decoded))
        if self._cut_at_stop_string(searched_from):
            return self._show(len(self._decoded))
        if len(self.token_ids) >= self._max_tokens:
            return self._finish(FinishReason.LENGTH)
        if len(self.token_ids) >= self._room:
            return self._finish(FinishReason.CONTEXT)
        return self._show(len(self._decoded) - undecided_suffix(self._decoded, self._stop_strings))

    def end(self, reason: FinishReason) -> str:
        """End the reply from outside (cancelled, error); returns the text not shown yet."""
        return self._finish(reason) if self.finish_reason is None else ""

    def _finish(self, reason: FinishReason) -> str:
        self.finish_reason = reason
        searched_from = max(0, len(self._decoded) - max(map(len, self._stop_strings), default=0))
        self._decoded += self._decoder.finish()
        self._cut_at_stop_string(searched_from)
        return self._show(len(self._decoded))

    def _cut_at_stop_string(self, searched_from: int) -> bool:
        found = [self._decoded.find(stop, searched_from) for stop in self._stop_strings]
        cut = min((position for position in found if position >= 0), default=-1)
        if cut < 0:
            return False
        self.finish_reason = FinishReason.STOP
        self._decoded = self._decoded[:cut]
        kept = sum(1 for end in self._ends if end <= cut)
        del self.token_ids[kept:], self._ends[kept:]
        return True

    def _show(self, until: int) -> str:
        fresh = self._decoded[self._shown : until]
        self._shown = max(self._shown, until)
        return fresh
