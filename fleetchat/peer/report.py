"""What a stage says of itself: READY and STATS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from fleetchat import __version__
from fleetchat.cutter.manifest import Manifest
from fleetchat.engine.interface import EngineTraits
from fleetchat.engine.memory import available_memory, resident_memory
from fleetchat.peer.queue import WINDOW
from fleetchat.wire.frames import MAX_SESSIONS_IN_STATS, Ready, SessionStats, Stats


def describe_ready(
    traits: EngineTraits, manifest: Manifest, *, cells: int, device: str, settings: str
) -> Ready:
    return Ready(
        fleetchat=__version__,
        openvino=openvino_version(),
        device=device,
        memory_free=available_memory(),
        cells=cells,
        window=WINDOW,
        engine=traits.name,
        sessions_per_batch=traits.sessions_per_batch,
        can_fork=traits.can_fork,
        block_size=traits.block_size,
        self_check=_self_check(traits, manifest),
        settings=settings,
    )


def describe_stats(
    sessions: Sequence[SessionStats],
    *,
    cells_granted: int,
    queue_length: int,
    batches: int,
    next_round_trip_us: int,
    dropped_frames: int,
) -> Stats:
    return Stats(
        sessions=tuple(sessions[:MAX_SESSIONS_IN_STATS]),
        cells_granted=cells_granted,
        cells_used=sum(session.live + session.dead for session in sessions),
        queue_length=queue_length,
        batches=batches,
        memory_resident=resident_memory(),
        next_round_trip_us=next_round_trip_us,
        dropped_frames=dropped_frames,
    )


def _self_check(traits: EngineTraits, manifest: Manifest) -> str:
    """The engine has passed its own, or it would not serve. What the build found concerns masked cells."""
    if manifest.self_check.rollback_passed or traits.name != "masked":
        return "passed"
    return "rollback differs: speculation is refused for this model"


@cache
def openvino_version() -> str:
    """Of the installed package, without importing it here."""
    try:
        return version("openvino")
    except PackageNotFoundError:
        return "not installed"
