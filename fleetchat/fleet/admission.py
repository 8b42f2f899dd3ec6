"""Replies that wait for room, first come first served."""

from __future__ import annotations

from collections import OrderedDict

import trio

from fleetchat.errors import FleetError
from fleetchat.fleet.room import BlockRoom
from fleetchat.ids import SessionId


class Admission:
    """`room` None lets everybody in: the engine reserves cells for each session by itself."""

    def __init__(self, room: BlockRoom | None) -> None:
        self._room = room
        self._waiting: OrderedDict[int, tuple[int, trio.Event]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Replies that have not begun."""
        return len(self._waiting)

    async def enter(self, number: int, cells: int) -> None:
        """Wait until a reply that may grow to `cells` fits, or was given up. Raises FleetError in numbers."""
        room = self._room
        if room is None:
            return
        if not room.fits_at_all(cells):
            size = room.blocks.block_size
            raise FleetError(
                f"this reply may take {cells} KV cells, the fleet granted {room.capacity * size}",
                hint="lower --context or --max-tokens, or raise --kv-cells",
            )
        if not self._waiting and room.admit(number, cells):
            return
        event = trio.Event()
        self._waiting[number] = (cells, event)
        try:
            await event.wait()
        finally:
            if self._waiting.pop(number, None):
                self._let_in()

    def give_up(self, number: int) -> None:
        """A reply that waits need not begin."""
        if number in self._waiting:
            self._waiting[number][1].set()

    def leave(self, number: int, session: SessionId | None) -> None:
        """A reply has ended: whoever waits may fit now."""
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
            event.set()
