"""The text of a reply: finished blocks as Markdown, the block that grows as plain text."""

from __future__ import annotations

import logging

from textual.containers import Vertical
from textual.widgets import Markdown, Static

from fleetchat.app.blocks import Block, definitions, split_blocks, with_definitions
from fleetchat.app.widgets.growing_text import GrowingText
from fleetchat.app.widgets.markdown_parser import reply_parser
from fleetchat.app.widgets.reply_markdown import ReplyMarkdown
from fleetchat.app.widgets.settled_size import SettledSize

log = logging.getLogger(__name__)

WAITING = "…"


class ReplyText(Vertical, SettledSize):
    """Takes sanitised text. Every block is rendered once: see `app.blocks`.

    Appending to a Markdown widget instead parses and mounts its last block anew each time (a list of
    50 items costs 0.4 s a piece).
    """

    DEFAULT_CSS = """
    ReplyText { height: auto; padding: 0 0 0 2; }
    ReplyText Markdown { margin: 0; padding: 0; }
    ReplyText MarkdownFence { margin: 0 0 1 0; }
    ReplyText .-joined FlatBulletList, ReplyText .-joined FlatOrderedList { margin: 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[tuple[Block, Markdown | Static]] = []
        self._tail = GrowingText(WAITING)
        self._tail_text = ""

    @property
    def source(self) -> str:
        """All text that is shown."""
        return "".join(block.source for block, _ in self._blocks) + self._tail_text

    def compose(self) -> list[GrowingText]:
        return [self._tail]

    async def append(self, text: str) -> None:
        """The next piece of a reply that grows."""
        *finished, last = split_blocks(self._tail_text + text) or [Block("")]
        self._tail_text = last.source
        self._tail.show(self._tail_text.strip("\n") or WAITING)
        for block in finished:
            await self._render_block(block, block.source)

    async def finish(self, text: str) -> None:
        """The whole text. What was rendered and is right stays; links that were defined late are repaired."""
        blocks, defined = split_blocks(text), definitions(text)
        kept = 0
        for (shown, _), block in zip(self._blocks, blocks, strict=False):
            if shown != block or with_definitions(block.source, defined) != block.source:
                break
            kept += 1
        outdated = [widget for _, widget in self._blocks[kept:]]
        del self._blocks[kept:]
        for block in blocks[kept:]:
            await self._render_block(block, with_definitions(block.source, defined))
        for widget in outdated:
            await widget.remove()
        self._tail_text = ""
        self._tail.display = False

    async def restart(self) -> None:
        """The reply grows again, from nothing."""
        await self.finish("")
        self._tail.show(WAITING)
        self._tail.display = True
        self.display = True

    async def _render_block(self, block: Block, source: str) -> None:
        widget: Markdown | Static
        try:
            widget = ReplyMarkdown(source, parser_factory=reply_parser, open_links=False)
            widget.set_class(block.joined, "-joined")
            await self.mount(widget, before=self._tail)
        except Exception:  # a reply is never lost to a fault of the renderer
            log.exception("a part of a reply could not be rendered as Markdown")
            widget = Static(block.source, markup=False)
            await self.mount(widget, before=self._tail)
        self._blocks.append((block, widget))
