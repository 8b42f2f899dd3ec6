"""Replies that wait for room, first come first served."""

from __future__ import annotations

from collections import OrderedDict

import trio

from fleetchat.errors import CellsRefused
from fleetchat.fleet.room import MORE_CELLS, BlockRoom
from fleetchat.ids import SessionId


class Admission:
    """`room` None lets everybody in: the engine reserves cells for each session by itself."""

    def __init__(self, room: BlockRoom | None) -> None:
        self._room = room
        self._waiting: OrderedDict[int, tuple[int, trio.Event]] = OrderedDict()
        self._inside: dict[int, int] = {}  # replies that were let in -> cells that each may grow to
        self._too_large: dict[int, int] = {}  # of those, what fits no longer

    @property
    def waiting(self) -> int:
        """Replies that have not begun."""
        return len(self._waiting)

    @property
    def largest(self) -> int:
        """Cells that the largest reply under way may grow to."""
        return max(self._inside.values(), default=0)

    async def enter(self, number: int, cells: int) -> None:
        """Wait until a reply that may grow to `cells` fits, or was given up. Raises CellsRefused."""
        room = self._room
        if room is None:
            self._inside[number] = cells
            return
        if not room.fits_at_all(cells):
            raise self._too_long(room, cells)
        if not self._waiting and room.admit(number, cells):
            self._inside[number] = cells
            return
        event = trio.Event()
        self._waiting[number] = (cells, event)
        try:
            await event.wait()
        finally:
            if self._waiting.pop(number, None) and self._room is not None:
                self._let_in()

    def renew(self, room: BlockRoom | None) -> None:
        """The chain came back, all cells are free: replies under way enter first, in their order.

        With fewer cells than before some of them may have to wait: see `resume`.
        """
        self._room = room
        inside, waiting = self._inside, self._waiting
        if room is None:
            self._waiting = OrderedDict()
            for number, (cells, event) in waiting.items():
                inside[number] = cells
                event.set()
            return
        self._inside, self._waiting = {}, OrderedDict()
        for number, cells in inside.items():
            if room.fits_at_all(cells):
                self._waiting[number] = (cells, trio.Event())
            else:
                self._too_large[number] = cells
        self._waiting.update(waiting)
        self._let_in()

    async def resume(self, number: int) -> None:
        """After `renew`: wait until a reply under way fits again. Raises CellsRefused."""
        if self._room is None:
            return
        if number in self._waiting:
            await self._waiting[number][1].wait()
        elif number in self._too_large:
            raise self._too_long(self._room, self._too_large.pop(number))

    @staticmethod
    def _too_long(room: BlockRoom, cells: int) -> CellsRefused:
        granted = room.capacity * room.blocks.block_size
        return CellsRefused(
            f"this reply may take {cells} KV cells, the fleet granted {granted}",
            hint=f"lower --context or --max-tokens, or {MORE_CELLS}",
        )

    def give_up(self, number: int) -> None:
        """A reply that waits need not begin."""
        if number in self._waiting:
            self._waiting[number][1].set()

    def leave(self, number: int, session: SessionId | None) -> None:
        """A reply has ended: whoever waits may fit now."""
        self._inside.pop(number, None)
        self._too_large.pop(number, None)
        self._waiting.pop(number, None)
        if self._room is not None:
            self._room.leave(number, session)
            self._let_in()

    def _let_in(self) -> None:
        assert self._room is not None
        while self._waiting:
            number, (cells, event) = next(iter(self._waiting.items()))
            if not self._room.admit(number, cells):
                return
            del self._waiting[number]
            self._inside[number] = cells
            event.set()
