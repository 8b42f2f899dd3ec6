"""Tables of a reply as one widget each.

Textual makes two widgets a cell, and lays all of them out: a table of 200 rows held up the keys for half a
second. Here the rows are laid out as one text. Columns are as wide as what they hold; where there is no room
for that, the widest ones give way, and their cells are wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from markdown_it.token import Token
from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock

FLAT_TABLE = "flat_table"  # type of the token that stands for all tokens of a table
HEADER = ".table--header"

Row = tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Every row has a cell for each of `aligns`: `left`, `center` or `right`."""

    header: Row
    rows: tuple[Row, ...]
    aligns: tuple[str, ...]

    def lines(self, width: int) -> list[Content]:
        """The table in `width` cells, its frame included."""
        columns = len(self.aligns)
        room = width - 3 * columns - 1
        if room < columns:  # not a cell a column
            return [line for row in (self.header, *self.rows) for line in _running(row, width)]
        natural = [
            max(row[place].cell_length for row in (self.header, *self.rows)) for place in range(columns)
        ]
        widths = column_widths([max(1, length) for length in natural], room)
        header = [cell.stylize(HEADER) for cell in self.header]
        rows = [self._row(row, widths) for row in self.rows]
        between = [_rule("├┼┤", widths)] if any(len(row) > 1 for row in rows) else []
        body = [line for number, row in enumerate(rows) for line in ([*between, *row] if number else row)]
        return [
            _rule("┌┬┐", widths),
            *self._row(header, widths),
            _rule("├┼┤", widths),
            *body,
            _rule("└┴┘", widths),
        ]

    def _row(self, cells: Sequence[Content], widths: Sequence[int]) -> list[Content]:
        """The lines of one row; cells with fewer lines end in blanks."""
        wrapped = [
            [cell] if cell.cell_length <= width else cell.wrap(width)
            for cell, width in zip(cells, widths, strict=True)
        ]
        lines = []
        for number in range(max(map(len, wrapped))):
            parts = [
                _aligned(cell[number], width, align) if number < len(cell) else Content(" " * width)
                for cell, width, align in zip(wrapped, widths, self.aligns, strict=True)
            ]
            lines.append(Content.assemble("│ ", Content(" │ ").join(parts), " │"))
        return lines


def column_widths(natural: Sequence[int], room: int) -> list[int]:
    """Natural widths as far as they fit together; all that are wider than a limit are cut to it."""
    left, limit = room, max(natural)
    for narrower, width in enumerate(sorted(natural)):
        limit = left // (len(natural) - narrower)
        if width > limit:
            break
        left -= width
    else:
        return list(natural)
    widths = [min(width, max(1, limit)) for width in natural]
    spare = room - sum(widths)
    for place, width in enumerate(natural):
        if spare > 0 and width > widths[place]:
            widths[place] += 1
            spare -= 1
    return widths


def _aligned(cell: Content, width: int, align: str) -> Content:
    blank = max(0, width - cell.cell_length)
    before = blank if align == "right" else blank // 2 if align == "center" else 0
    return cell.pad(before, blank - before)


def _rule(corners: str, widths: Sequence[int]) -> Content:
    left, middle, right = tuple(corners)
    return Content(left + middle.join("─" * (width + 2) for width in widths) + right)


def _running(row: Row, width: int) -> list[Content]:
    return Content(" · ").join(row).wrap(max(1, width))


class TableVisual(Visual):
    """The lines of a table, laid out for the width at hand."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._laid_out: tuple[int, list[Content]] = (0, [])

    def at(self, width: int) -> list[Content]:
        if self._laid_out[0] != width:
            self._laid_out = (width, self._table.lines(width))
        return self._laid_out[1]

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        if not width:
            return []
        return Content("\n").join(self.at(width)).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return len(self.at(width)) if width else 0


class FlatTable(MarkdownBlock):
    """A table. A block of Textual's, so that links and inline styles work as elsewhere."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--header"}
    DEFAULT_CSS = """
    FlatTable { margin: 0 0 1 0; text-wrap: nowrap; }
    FlatTable > .table--header { color: $primary; text-style: bold; }
    """

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)
        self._table_visual = TableVisual(self._read(token.meta["tokens"]))

    def _read(self, tokens: Sequence[Token]) -> Table:
        rows: list[list[Content]] = []
        aligns: list[str] = []
        for before, token in pairwise(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline" and before.type in ("th_open", "td_open"):
                rows[-1].append(self._token_to_content(token))
                if before.type == "th_open":
                    aligns.append(str(before.attrs.get("style", "")).removeprefix("text-align:") or "left")
        header, *others = [tuple(row) for row in rows]
        return Table(header, tuple(others), tuple(aligns))

    def render(self) -> TableVisual:
        return self._table_visual

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = self._table_visual.at(self.content_size.width)
        return selection.extract("\n".join(line.plain for line in lines)), "\n"


def with_flat_tables(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, those of each table as one."""
    inside: list[Token] | None = None
    for token in tokens:
        if token.type == "table_open":
            inside = [token]
        elif inside is None:
            yield token
        elif token.type == "table_close":
            first = inside[0]
            yield Token(
                FLAT_TABLE, first.tag, 0, map=first.map, level=first.level, meta={"tokens": [*inside, token]}
            )
            inside = None
        else:
            inside.append(token)
