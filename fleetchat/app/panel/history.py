"""The blocks of the last minutes, gathered from snapshots that overlap, to look back at (pure)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from fleetchat.fleet.timeline import DRAFT_LANE, Block, Lane, TimelineSnapshot, busy_share

KEPT_SECONDS = 120.0
SLACK = 2048  # blocks that are too old and still kept, so that they are not cut off one by one


class BlockHistory:
    """Takes snapshots of one fleet; those of another one begin it anew."""

    def __init__(self) -> None:
        self._lanes: dict[int, list[Block]] = {}
        self.newest: TimelineSnapshot | None = None

    def take(self, snapshot: TimelineSnapshot) -> list[Block]:
        """Keep what is new, and return it: lane by lane, in order of time."""
        newest = self.newest
        if newest is not None and (snapshot.end < newest.end or len(snapshot.stages) != len(newest.stages)):
            self._lanes.clear()
        self.newest = snapshot
        return [block for lane in (*snapshot.stages, snapshot.drafting) for block in self._take_lane(lane)]

    def _take_lane(self, lane: Lane) -> Sequence[Block]:
        kept = self._lanes.setdefault(lane.lane, [])
        last = kept[-1] if kept else None
        new = lane.blocks if last is None else lane.blocks[_first_after(lane.blocks, last) :]
        kept.extend(new)
        assert self.newest is not None
        old = bisect_left(kept, self.newest.end - KEPT_SECONDS, key=lambda block: block.end)
        if old > SLACK:
            del kept[:old]
        return new

    def is_idle(self, seconds: float) -> bool:
        """Whether nothing was computed in the last `seconds`, as is known of all of them."""
        newest = self.newest
        if newest is None:
            return True
        start = newest.end - seconds
        return newest.complete_until >= newest.end and not any(
            kept and kept[-1].end > start for kept in self._lanes.values()
        )

    def window(self, end: float, seconds: float) -> TimelineSnapshot | None:
        """As the fleet would have shown it at `end`; None while nothing was taken."""
        newest = self.newest
        if newest is None:
            return None
        start = end - seconds
        complete = max(start, min(end, newest.complete_until))
        return TimelineSnapshot(
            start=start,
            end=end,
            complete_until=complete,
            stages=tuple(self._lane(lane.lane, start, end, complete) for lane in newest.stages),
            drafting=self._lane(DRAFT_LANE, start, end, complete),
        )

    def _lane(self, lane: int, start: float, end: float, complete: float) -> Lane:
        kept = self._lanes.get(lane, [])
        first = bisect_right(kept, start, key=lambda block: block.end)
        stop = bisect_left(kept, end, key=lambda block: block.start)
        shown = tuple(kept[first:stop])
        return Lane(lane, shown, busy_share(shown, start, complete))


def _first_after(blocks: Sequence[Block], last: Block) -> int:
    """Blocks of a lane do not overlap, and begin in order: where those after `last` begin."""
    place = bisect_left(blocks, last.start, key=lambda block: block.start)
    while place < len(blocks) and blocks[place].start == last.start and blocks[place] != last:
        place += 1
    return place + 1 if place < len(blocks) and blocks[place] == last else place
