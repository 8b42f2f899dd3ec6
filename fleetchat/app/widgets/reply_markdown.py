"""The Markdown of a reply: lists and tables are one widget each."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it.token import Token
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock

from fleetchat.app.widgets.flat_list import FlatBulletList, FlatOrderedList
from fleetchat.app.widgets.flat_table import FLAT_TABLE, FlatTable, with_flat_tables


class ReplyMarkdown(Markdown):
    """Markdown that is mounted and laid out in a moment, however long its lists and tables are."""

    BLOCKS = {  # noqa: RUF012  (Textual declares it so)
        **Markdown.BLOCKS,
        "bullet_list_open": FlatBulletList,
        "ordered_list_open": FlatOrderedList,
    }

    def _parse_markdown(self, tokens: Iterable[Token]) -> Iterable[MarkdownBlock]:
        return super()._parse_markdown(with_flat_tables(tokens))

    def unhandled_token(self, token: Token) -> MarkdownBlock | None:
        if token.type == FLAT_TABLE:
            return FlatTable(self, token)
        return super().unhandled_token(token)
