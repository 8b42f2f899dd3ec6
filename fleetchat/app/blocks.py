"""A Markdown text in pieces that can be rendered one by one (pure).

While a reply grows, everything before its last piece is final: it is rendered once, and only the last
piece is shown as plain text. Long lists are cut between items: what grows must stay short, because it is
laid out anew with every piece.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

LIST_ITEMS = 20  # items of a list that are rendered at once

LISTS = ("bullet_list_open", "ordered_list_open")
DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:[ \t]*\S.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """Some source of a Markdown text. `joined`: the next block goes on with the same list."""

    source: str
    joined: bool = False


def _block_parser() -> MarkdownIt:
    """Finds blocks only: what stands inside a line does not matter here."""
    return MarkdownIt("gfm-like").disable(["inline", "linkify", "text_join"], ignoreInvalid=True)


_PARSER = _block_parser()


def split_blocks(text: str) -> list[Block]:
    """The blocks of `text`; their joined sources equal it. The last one may still grow.

    `text` has newlines as its only line ends (`chat.sanitise`).
    """
    lines = text.splitlines(keepends=True) if "\n" in text else [text]
    starts, joined = _starts(_PARSER.parse(text))
    if not starts:
        return [Block(text)] if text else []
    starts[0] = 0
    bounds = zip(starts, [*starts[1:], len(lines)], [*joined[1:], False], strict=True)
    return [Block("".join(lines[start:stop]), following) for start, stop, following in bounds]


def _starts(tokens: list[Token]) -> tuple[list[int], list[bool]]:
    """The first line of every block, and whether it goes on with the list before it."""
    starts: list[int] = []
    joined: list[bool] = []
    items = 0
    for token in tokens:
        if token.map is None or token.nesting < 0:
            continue
        if token.level == 0:
            items = 0
            starts.append(token.map[0])
            joined.append(False)
        elif token.type == "list_item_open" and token.level == 1:
            items += 1
            if items > 1 and items % LIST_ITEMS == 1 and token.map[0] > starts[-1]:
                starts.append(token.map[0])
                joined.append(True)
    return starts, joined


def definitions(text: str) -> str:
    """The link definitions of a text, to be given to each of its blocks."""
    return "\n".join(match.group() for match in DEFINITION.finditer(text))


def with_definitions(source: str, defined: str) -> str:
    """A block that finds the links which are defined elsewhere."""
    if not defined or "[" not in source:
        return source
    return f"{source.rstrip()}\n\n{defined}\n"


@dataclass(frozen=True, slots=True)
class Thought:
    """A reply of a model that thinks aloud: what it thought, and what it says."""

    thought: str | None
    thinking: bool  # the thought is not complete yet
    reply: str


OPENING, CLOSING = "<think>", "</think>"


def split_thought(text: str) -> Thought:
    """Tell a leading `<think>` block from the reply. The opening may stand in the model's template."""
    begun = text.lstrip()
    before, closing, after = begun.partition(CLOSING)
    if begun.startswith(OPENING):
        return Thought(before.removeprefix(OPENING).strip("\n"), not closing, after.lstrip("\n"))
    if closing and OPENING not in before:
        return Thought(before.strip("\n"), False, after.lstrip("\n"))
    return Thought(None, False, text)
