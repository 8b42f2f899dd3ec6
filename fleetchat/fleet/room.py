"""Room for KV cells on a chain whose engines keep them in blocks (pure).

The coordinator counts blocks as every stage does, over the least capacity of all stages: a stage never
evicts by itself. A reply is let in when the most that all replies under way may grow to fits; so no reply
ever waits for cells in its middle. Cells beyond that belong to idle sessions, as long as nobody claims them.
"""

from __future__ import annotations

from fleetchat.engine.blocks import BlockManager, BlockPool
from fleetchat.ids import SessionId

MORE_CELLS = "raise kv_cells under [fleet] in fleet.toml, or start the peers with more --kv-cells"


class BlockRoom:
    """`blocks` mirrors what each stage holds of this chain's sessions."""

    def __init__(self, cells: int, block_size: int) -> None:
        self.blocks: BlockManager[SessionId] = BlockManager(
            BlockPool(max(1, cells // block_size)), block_size
        )
        self._admitted: dict[int, int] = {}  # number of a session with a reply under way -> blocks at the end
        self._claims: dict[SessionId, int] = {}  # sessions under way -> length that they are about to reach

    @property
    def capacity(self) -> int:
        """Blocks."""
        return self.blocks.available + self.blocks.held

    def fits_at_all(self, cells: int) -> bool:
        """Whether a reply that ends with so many cells could ever be let in."""
        return self.blocks.blocks_for(cells) <= self.capacity

    def admit(self, number: int, cells: int) -> bool:
        """Let a reply in that may grow to `cells`; False when it has to wait."""
        needed = self.blocks.blocks_for(cells)
        if sum(self._admitted.values()) + needed > self.capacity:
            return False
        self._admitted[number] = needed
        return True

    def admitted(self, number: int) -> bool:
        """Whether the session has a reply under way. One that waits for room has not."""
        return number in self._admitted

    def leave(self, number: int, session: SessionId | None) -> None:
        """A reply has ended; its session's cells stay until somebody else claims them."""
        self._admitted.pop(number, None)
        if session is not None:
            self._claims.pop(session, None)

    def claim(self, session: SessionId, length: int) -> bool:
        """A session is about to grow to `length`; False when an idle one has to be evicted for it."""
        self._claims[session] = length
        return self._peak() <= self.capacity

    def forget(self, session: SessionId) -> None:
        """The session's cells are free on every stage."""
        self._claims.pop(session, None)
        self.blocks.free(session)

    def _peak(self) -> int:
        """Most blocks that are held when all claims are fulfilled.

        Two bounds, the lower one counts. Either all blocks held now and what each session adds, one more for
        the copy of a shared block; or all sessions with nothing shared.
        """
        added = whole = 0
        for session, length in self._claims.items():
            held, wanted = len(self.blocks.table(session)), self.blocks.blocks_for(length)
            whole += max(held, wanted)
            if length > self.blocks.length(session):
                added += max(0, wanted - held) + self.blocks.shares_last(session)
        idle = self.blocks.distinct(one for one in self.blocks.sessions() if one not in self._claims)
        return min(self.blocks.held + added, idle + whole)
