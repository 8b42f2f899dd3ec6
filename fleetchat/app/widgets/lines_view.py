"""Lines of styled spans on the screen. Only lines that have changed are drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from fleetchat.app.panel.lines import TAB_LOOKS, Line
from fleetchat.app.panel.pointing import Spot, explanation, spot_at
from fleetchat.app.widgets.lasting_styles import LastingStyles

LOOKS = ("plain", "bold", "title", "dim", "good", "warn", "bad", "accent")
ALL_LOOKS = (*LOOKS, *(f"tab-{number}" for number in range(1, TAB_LOOKS + 1)))
MORE = " ↓ PgDn"
POINTED = Style(reverse=True)


class LinesView(LastingStyles):
    """Shows what it is given; `key` names the figure that is pointed at."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"look--{look}" for look in ALL_LOOKS}
    DEFAULT_CSS = """
    LinesView { color: $foreground; }
    LinesView > .look--plain { color: $foreground; }
    LinesView > .look--bold { color: $foreground; text-style: bold; }
    LinesView > .look--title { color: $primary; text-style: bold; }
    LinesView > .look--dim { color: $secondary; }
    LinesView > .look--good { color: $success; }
    LinesView > .look--warn { color: $warning; text-style: bold; }
    LinesView > .look--bad { color: $error; text-style: bold; }
    LinesView > .look--accent { color: $accent; text-style: bold; }
    LinesView > .look--tab-1 { color: $primary; }
    LinesView > .look--tab-2 { color: $accent; }
    LinesView > .look--tab-3 { color: $success; }
    LinesView > .look--tab-4 { color: $error; }
    LinesView > .look--tab-5 { color: $secondary; }
    LinesView > .look--tab-6 { color: $primary-darken-2; }
    LinesView > .look--tab-7 { color: $accent-darken-2; }
    LinesView > .look--tab-8 { color: $success-darken-2; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._key: tuple[str, str] | None = None
        self._top = 0

    @property
    def lines(self) -> tuple[Line, ...]:
        return self._lines

    @property
    def key(self) -> tuple[str, str] | None:
        return self._key

    def show(self, lines: Sequence[Line]) -> None:
        """Draw the lines that differ."""
        before, self._lines = self._lines, tuple(lines)
        if len(before) != len(self._lines):
            self._top = max(0, min(self._top, self.last_top))
            self.refresh()
            return
        for number, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if old != new:
                self._draw_line(number)

    def point_at(self, spot: Spot | None) -> None:
        """Mark a figure, and scroll to it."""
        self._key = spot.key if spot else None
        if spot is not None:
            height = max(1, self.size.height)
            self._top = max(min(self._top, spot.line), spot.line - height + 1)
        self.refresh()

    @property
    def last_top(self) -> int:
        return max(0, len(self._lines) - max(1, self.size.height))

    def scroll_lines(self, lines: int) -> None:
        self._top = max(0, min(self._top + lines, self.last_top))
        self.refresh()

    def spot_under(self, x: int, y: int) -> Spot | None:
        """The figure at a place of the widget."""
        return spot_at(self._lines, self._top + y, x - self.gutter.left)

    def on_resize(self, _event: events.Resize) -> None:
        self._top = max(0, min(self._top, self.last_top))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        spot = self.spot_under(event.x, event.y)
        self.tooltip = None if spot is None else _tooltip(spot)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.scroll_lines(-3)

    def _draw_line(self, number: int) -> None:
        row = number - self._top
        if 0 <= row < self.size.height:
            self.refresh(Region(0, row, self.outer_size.width, 1))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        blank = self.get_component_rich_style("look--plain")
        number = self._top + y
        if number >= len(self._lines):
            return Strip.blank(width, blank)
        strip = Strip(self._segments(self._lines[number])).adjust_cell_length(width, blank)
        if y == self.size.height - 1 and self._top < self.last_top and width > 2 * len(MORE):
            more = Segment(MORE, self.get_component_rich_style("look--title"))
            return Strip([*strip.crop(0, width - len(MORE)), more], width)
        return strip

    def _segments(self, line: Line) -> list[Segment]:
        segments, marked = [], False
        for span in line:
            style = self.get_component_rich_style(f"look--{span.look}")
            if not marked and span.figure and (span.figure, span.subject) == self._key:
                style, marked = style + POINTED, True
            segments.append(Segment(span.text, style))
        return segments


def _tooltip(spot: Spot) -> Content:
    told = explanation(spot)
    return Content(f"{told.title}\n{told.meaning}")
