"""The code blocks of a Markdown text (pure)."""

from __future__ import annotations

from markdown_it import MarkdownIt

_PARSER = MarkdownIt("gfm-like").disable(["inline", "linkify", "text_join"], ignoreInvalid=True)


def code_blocks(text: str) -> list[str]:
    """Their contents in order, also of those inside lists and quotes."""
    return [token.content for token in _PARSER.parse(text) if token.type in ("fence", "code_block")]
