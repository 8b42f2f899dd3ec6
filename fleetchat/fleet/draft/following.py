"""How a drafter notices that its copy of a session is no longer what was committed (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.fleet.session import common_prefix
from fleetchat.wire.frames import Draw


@dataclass(slots=True)
class Following:
    """Finds how many leading ids of a copy are right, without looking at all of them every time.

    Within one reply committed ids are only appended, so what was right stays right; at the start of
    another one (known by its first position and seed), or when there are fewer ids than before, the
    copy is compared from its first id on. The copy may be cut and extended in between, but its ids before
    the number that was returned last must stay what they are.
    """

    reply: tuple[int, int] | None = None
    right: int = 0

    def common(self, copy: list[int], committed: Sequence[int], draw: Draw) -> int:
        """Length of the common prefix of the copy and the committed ids."""
        reply = (draw.reply_start, draw.seed)
        grown = reply == self.reply and self.right <= min(len(copy), len(committed))
        start = self.right if grown else 0
        self.reply = reply
        self.right = start + common_prefix(copy[start:], committed[start:])
        return self.right
