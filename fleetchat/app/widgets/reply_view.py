"""A reply: plain text while it grows, Markdown once it is complete."""

from __future__ import annotations

import logging

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Markdown, Static

from fleetchat.app.widgets.markdown_parser import reply_parser
from fleetchat.app.words import reply_footer
from fleetchat.chat.sanitise import Sanitiser, sanitise
from fleetchat.fleet.telemetry import Answer

log = logging.getLogger(__name__)

WAITING = "…"


class ReplyView(Vertical):
    """One reply of the model.

    The growing text is a plain Static: Markdown that is appended to parses and mounts its last block
    anew each time (a list of 50 items costs 0.4 s per piece). The full update at the end also repairs
    what streaming gets wrong, late link references for one.
    """

    DEFAULT_CSS = """
    ReplyView { height: auto; margin: 0 0 1 0; }
    ReplyView .author { text-style: bold; color: $primary; }
    ReplyView .text { padding: 0 0 0 2; }
    ReplyView Markdown { margin: 0; padding: 0 0 0 2; }
    ReplyView .footer { padding: 0 0 0 2; color: $secondary; }
    """

    def __init__(self, author: str) -> None:
        super().__init__()
        self._author = author
        self._sanitiser = Sanitiser()
        self.text = ""  # what was received, sanitised
        self._tail = Static(WAITING, markup=False, classes="text")

    def compose(self) -> ComposeResult:
        yield Static(sanitise(self._author), markup=False, classes="author")
        yield self._tail

    def append(self, text: str) -> None:
        """The next piece, as the model wrote it."""
        self.text += self._sanitiser.push(text)
        self._tail.update(self.text.rstrip("\n") or WAITING)

    async def finish(self, answer: Answer, context: int) -> None:
        """Show the complete reply and its figures; what came before an error is kept."""
        self.text = sanitise(answer.text) or self.text
        if self.text.strip():
            await self._show_markdown()
        else:
            self._tail.display = False
        await self.mount(Static(sanitise(reply_footer(answer, context)), markup=False, classes="footer"))

    async def _show_markdown(self) -> None:
        self._tail.update(self.text)
        try:
            markdown = Markdown(self.text, parser_factory=reply_parser, open_links=False)
            await self.mount(markdown, after=self._tail)
        except Exception:  # a reply is never lost to a fault of the renderer: the plain text stays
            log.exception("a reply could not be rendered as Markdown")
        else:
            self._tail.display = False
