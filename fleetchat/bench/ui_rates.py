"""Tokens a second while all chats write, from snapshots: counted alike with a screen and without (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetchat.fleet.telemetry import FleetSnapshot

SETTLING = 0.75  # seconds after the last chat began that do not count: prompts are read then


def rate_of(snapshots: Iterable[FleetSnapshot], chats: int) -> float:
    """Tokens a second over all stretches between snapshots in which `chats` sessions write.

    A session writes when it is past its prompt. Raises ValueError when they never did together.
    """
    tokens, seconds, since = 0, 0.0, None
    before: FleetSnapshot | None = None
    for snapshot in snapshots:
        if not _all_write(snapshot, chats):
            before, since = None, None
            continue
        since = snapshot.taken if since is None else since
        if before is not None and before.taken - since >= SETTLING:
            tokens += _written(snapshot) - _written(before)
            seconds += snapshot.taken - before.taken
        before = snapshot
    if seconds <= 0:
        raise ValueError(f"{chats} chats never wrote at the same time")
    return tokens / seconds


def _all_write(snapshot: FleetSnapshot, chats: int) -> bool:
    return len(_writing(snapshot)) == chats


def _writing(snapshot: FleetSnapshot) -> list[int]:
    return [one.tokens for one in snapshot.sessions if one.generating and not one.prefill_total]


def _written(snapshot: FleetSnapshot) -> int:
    return sum(_writing(snapshot))


def p95(values: Sequence[float]) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
