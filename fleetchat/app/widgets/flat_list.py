"""Lists of a reply as one widget each.

Textual mounts five widgets an item, which makes a list of 200 items cost seconds; here the lines are laid
out as one text, markers and hanging indents included. Lists that hold more than text (code, tables,
quotes) are left to Textual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBulletList,
    MarkdownListItem,
    MarkdownOrderedList,
    MarkdownParagraph,
)

NARROWEST = 8  # cells that a text keeps beside its marker


@dataclass(frozen=True, slots=True)
class ListLine:
    """One paragraph of an item; `marker` stands before its first line."""

    indent: int
    marker: str
    content: Content

    def wrapped(self, width: int) -> list[Content]:
        lead = min(self.indent + len(self.marker), max(0, width - NARROWEST))
        first = (" " * self.indent + self.marker)[-lead:] if lead else ""
        lines = self.content.wrap(max(1, width - lead))
        return [Content(first if not place else " " * lead) + line for place, line in enumerate(lines)]


class ListVisual(Visual):
    """All lines of a list, wrapped to the width at hand."""

    def __init__(self, lines: list[ListLine]) -> None:
        self._lines = lines
        self._wrapped: tuple[int, Content] = (0, Content())

    def at(self, width: int) -> Content:
        if self._wrapped[0] != width:
            rows = [row for line in self._lines for row in line.wrapped(width)]
            self._wrapped = (width, Content("\n").join(rows))
        return self._wrapped[1]

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self.at(width).render_strips(width, height, style, options) if width else []

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return len(self.at(width).plain.split("\n")) if width else 0


class ListText(MarkdownBlock):
    """The text of a list. A block of Textual's, so that links and inline styles work as elsewhere."""

    def __init__(self, owner: MarkdownBlock, lines: list[ListLine]) -> None:
        super().__init__(owner._markdown, owner._token, owner.source_range)
        self._lines_visual = ListVisual(lines)

    def render(self) -> ListVisual:
        return self._lines_visual

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self._lines_visual.at(self.content_size.width).plain), "\n"


class FlatBulletList(MarkdownBulletList):
    """A bullet list, as one widget where it holds nothing but text."""

    def compose(self) -> ComposeResult:
        lines = flattened(self, 1)
        if lines is None:
            yield from super().compose()
        else:
            self._blocks.clear()
            yield ListText(self, lines)


class FlatOrderedList(MarkdownOrderedList):
    """A numbered list, as one widget where it holds nothing but text."""

    def compose(self) -> ComposeResult:
        lines = flattened(self, 1)
        if lines is None:
            yield from super().compose()
        else:
            self._blocks.clear()
            yield ListText(self, lines)


def flattened(block: MarkdownBlock, indent: int) -> list[ListLine] | None:
    """The lines of a list; None when it holds more than text."""
    items = [item for item in block._blocks if isinstance(item, MarkdownListItem)]
    markers = list(_markers(block, items))
    lines: list[ListLine] = []
    for marker, item in zip(markers, items, strict=True):
        inner = _item_lines(item, indent, marker)
        if inner is None:
            return None
        lines += inner
    return lines


def _item_lines(item: MarkdownListItem, indent: int, marker: str) -> list[ListLine] | None:
    lines: list[ListLine] = []
    for block in item._blocks:
        if isinstance(block, MarkdownParagraph):
            lines.append(ListLine(indent, marker if not lines else " " * len(marker), block._content))
        elif isinstance(block, MarkdownBulletList | MarkdownOrderedList):
            nested = flattened(block, indent + len(marker))
            if nested is None:
                return None
            lines += nested if lines else [ListLine(indent, marker, Content()), *nested]
        else:
            return None
    return lines or [ListLine(indent, marker, Content())]


def _markers(block: MarkdownBlock, items: list[MarkdownListItem]) -> Iterable[str]:
    if not isinstance(block, MarkdownOrderedList):
        return (item.bullet for item in items)
    first = int(items[0].bullet) if items and items[0].bullet.isdecimal() else 1
    numbers = [f"{number}. " for number in range(first, first + len(items))]
    width = max(map(len, numbers), default=0)
    return (number.rjust(width) for number in numbers)
