"""Prompts that begin alike are computed once: who comes second waits for the first (no chain in here).

Several questions about one text are asked at once, and after a lost peer all chats are filled at once. What
they have in common can be forked as soon as one of them holds it; without waiting each would compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from fleetchat.fleet.batching import PIPELINED_CHUNK
from fleetchat.fleet.session import common_prefix

# Rows that a FORK must spare. It is carried out at once, and copies a block where the prefix ends within one:
# 0.15 ms of the default model, of which a row takes 0.4 ms on each of two stages.
WORTH_A_FORK = 8


class SharedPrompts:
    """The sessions that are being filled, by number, with the ids that they will hold."""

    def __init__(self) -> None:
        self._filling: dict[int, Sequence[int]] = {}
        self._changed = trio.Event()

    @contextmanager
    def filling(self, number: int, token_ids: Sequence[int]) -> Iterator[None]:
        """A session is being filled while this lasts; it ends when it is, or when it never will be."""
        self._filling[number] = token_ids
        try:
            yield
        finally:
            del self._filling[number]
            self.note()

    def note(self) -> None:
        """Some session holds more than before, or is no longer being filled."""
        self._changed.set()
        self._changed = trio.Event()

    def worth_waiting_for(self, number: int, token_ids: Sequence[int], have: int) -> bool:
        """Whether another one is being filled with much of what session `number` lacks.

        `have` of its ids are there, or can be forked now. Half of the rest must be spared, and the wait must
        be short: the other one tells what it holds chunk by chunk.
        """
        return any(
            self._spares(token_ids, have, ids) for other, ids in self._filling.items() if other != number
        )

    async def changed(self) -> None:
        await self._changed.wait()

    @staticmethod
    def _spares(token_ids: Sequence[int], have: int, coming: Sequence[int]) -> bool:
        shared = min(common_prefix(coming, token_ids), len(token_ids) - 1)
        least = max(WORTH_A_FORK, (len(token_ids) - have) / 2)
        return shared - have >= least and 2 * shared >= min(len(coming), PIPELINED_CHUNK)
