"""What one reply knows of the recoveries in its middle (pure: the caller gives the time)."""

from __future__ import annotations

from fleetchat.fleet.trouble import Move, Recovery

MOVED = "moved"  # the cause of what was no fault


class Resumptions:
    """Each recovery and move, from the epoch that serves again to the first token that came out of it."""

    def __init__(self) -> None:
        self._reported: list[dict[str, object]] = []
        self._under_way: list[Recovery | Move] = []
        self._fed = 0

    @property
    def refilling(self) -> bool:
        """The cells are being filled again; no token came yet."""
        return bool(self._under_way)

    def begin(self, recovery: Recovery | Move) -> None:
        """Another epoch serves this reply."""
        self._under_way.append(recovery)

    def fed(self, rows: int) -> None:
        """A round is about to feed so many committed ids."""
        self._fed = rows

    def emitted(self, now: float) -> None:
        """A token came."""
        for recovery in self._under_way:
            self._reported.append(self._entry(recovery, now))
        self._under_way.clear()

    def report(self) -> tuple[dict[str, object], ...]:
        """As `ask --json` says it. Milliseconds from the first sign of the fault; None: no token came."""
        unfinished = [self._entry(recovery, None) for recovery in self._under_way]
        return (*self._reported, *unfinished)

    def _entry(self, recovery: Recovery | Move, resumed: float | None) -> dict[str, object]:
        if isinstance(recovery, Move):
            return {
                "stage": None,
                "cause": MOVED,
                "noticed_ms": 0.0,
                "resumed_ms": None if resumed is None else round(1000 * (resumed - recovery.began), 1),
                "tokens_reprefilled": self._fed,
            }
        loss = recovery.loss
        return {
            "stage": loss.stage,
            "cause": loss.cause.value,
            "noticed_ms": round(1000 * (loss.noticed - loss.began), 1),
            "resumed_ms": None if resumed is None else round(1000 * (resumed - loss.began), 1),
            "tokens_reprefilled": self._fed,
        }
