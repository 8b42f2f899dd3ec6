"""What speculation did, counted for a reply, a session and the fleet alike (pure).

drafted = accepted + rejected; a reply's tokens = accepted + rounds − what stop rules cut.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fleetchat.fleet.telemetry import SpeculationSnapshot

REMEMBERED = 96  # rounds with drafts, for the line of recent acceptance
POINTS = 12  # of that line


@dataclass(slots=True)
class Counters:
    """Grows with every round. `depth` and `reason` are those of the last round that could draft."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_depth: list[int] = field(default_factory=list)  # rounds with 0, 1, … drafts
    by_accepted: list[int] = field(default_factory=list)  # rounds with drafts, of which 0, 1, … were accepted
    rollbacks: int = 0
    masked: int = 0  # cells hidden by rollbacks, on each stage
    compactions: int = 0
    depth: int = 0
    reason: str = ""
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def count_round(self, drafted: int, accepted: int, reason: str) -> None:
        """One round came back. `reason` says why so many were drafted."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.by_depth.extend([0] * (drafted + 1 - len(self.by_depth)))
        self.by_depth[drafted] += 1
        self.depth, self.reason = drafted, reason
        if drafted:
            self.recent.append((drafted, accepted))
            self.by_accepted.extend([0] * (accepted + 1 - len(self.by_accepted)))
            self.by_accepted[accepted] += 1

    def count_rollback(self, masked: int) -> None:
        """A slice hid `masked` cells; 0 is no rollback."""
        if masked:
            self.rollbacks += 1
            self.masked += masked

    def snapshot(self, drafter: str) -> SpeculationSnapshot:
        return SpeculationSnapshot(
            drafter=drafter,
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
            rollbacks=self.rollbacks,
            cells_masked=self.masked,
            compactions=self.compactions,
            depth=self.depth,
            reason=self.reason,
            recent=recent_acceptance(self.recent),
            by_depth=tuple(self.by_depth),
            by_accepted=tuple(self.by_accepted),
        )


def recent_acceptance(rounds: deque[tuple[int, int]]) -> tuple[float, ...]:
    """Acceptance of the last rounds in at most `POINTS` steps, the oldest first."""
    listed = list(rounds)
    size = max(1, -(-len(listed) // POINTS))
    steps = [listed[start : start + size] for start in range(0, len(listed), size)]
    return tuple(
        sum(accepted for _, accepted in step) / sum(drafted for drafted, _ in step) for step in steps
    )
