"""No speculation: every round draws one token."""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.fleet.draft.interface import NOTHING, ChooseDepth, Proposal, ShouldStop, never
from fleetchat.wire.frames import Draw


class NoDrafter:
    """Implements `interface.Drafter`."""

    name = "none"

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        return NOTHING

    def forget(self, session: int) -> None:
        """Nothing is held."""
