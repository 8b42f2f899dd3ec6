"""Puts the widgets of a screen together; what has not changed is neither rendered nor cut up.

Textual renders all widgets within the smallest rectangle around everything that changed. A figure at the top
and a key in the prompt make that the whole screen, many times a second, while the stages want the processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import cast

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip

Chops = dict[int, dict[int, Strip | None]]  # of each row: what stands between two cuts, by the first one


class SparingCompositor(Compositor):
    """Writes the same as Textual's."""

    def render_partial_update(self) -> ChopsUpdate | None:
        height = self.size.height
        spans = [span for span in self._regions_to_spans(self._dirty_regions) if span[0] < height]
        self._dirty_regions.clear()
        if not spans:
            return None
        chops: Chops = {y: dict.fromkeys(self.cuts[y][:-1]) for y, _, _ in spans}
        self._fill(chops, self._wanted(spans))
        ends = {y: self.cuts[y][1:] for y in chops}
        return ChopsUpdate(cast("list[dict[int, Strip | None]]", chops), spans, cast("list[list[int]]", ends))

    def _wanted(self, spans: Iterable[tuple[int, int, int]]) -> dict[int, set[int]]:
        """Of each row the first cuts of the pieces that will be written."""
        wanted: dict[int, set[int]] = {}
        for y, x1, x2 in spans:
            cuts = self.cuts[y]
            pieces = pairwise(cuts)
            wanted.setdefault(y, set()).update(x for x, end in pieces if x < x2 and end > x1)
        return wanted

    def _fill(self, chops: Chops, wanted: dict[int, set[int]]) -> None:
        """Front to back: a piece belongs to the first widget that covers it."""
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            rows = [
                y
                for y, cuts in wanted.items()
                if seen.y <= y < seen.bottom and any(seen.x <= x < seen.right for x in cuts)
            ]
            for first, count in _runs(rows):
                crop = Region(seen.x - region.x, first - region.y, seen.width, count)
                for y, strip in enumerate(widget.render_lines(crop), first):
                    self._put(strip, seen, chops[y], wanted[y], y)
            for y in rows:
                if not wanted[y]:
                    del wanted[y]
            if not wanted:
                return

    def _put(
        self, strip: Strip, seen: Region, chops: dict[int, Strip | None], wanted: set[int], y: int
    ) -> None:
        """Cut one line of a widget up, and keep what nothing covers."""
        cuts = [x for x in self.cuts[y] if seen.x <= x <= seen.right]
        for x, piece in zip(cuts, strip.divide([x - seen.x for x in cuts[1:]]), strict=False):
            if x in wanted:
                wanted.discard(x)
                chops[x] = piece


def _runs(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Rows that follow each other, as the first one and how many they are. `rows` ascend."""
    first, count = 0, 0
    for row in rows:
        if count and row == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = row, 1
    if count:
        yield first, count
