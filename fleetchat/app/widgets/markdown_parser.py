"""How the Markdown of a reply is read: as GitHub does, and a newline stays a newline.

Models write verses, addresses and lists of facts with single newlines; CommonMark would join them.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore


def keep_newlines(state: StateCore) -> None:
    """Every soft line break becomes a hard one."""
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "softbreak":
                token.type = "hardbreak"


def reply_parser() -> MarkdownIt:
    """A parser for `textual.widgets.Markdown`."""
    parser = MarkdownIt("gfm-like")
    parser.core.ruler.push("keep_newlines", keep_newlines)
    return parser
