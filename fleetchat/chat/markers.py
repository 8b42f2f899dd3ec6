"""Which characters of a rendered template came from which message (pure).

Contents enter the template between two markers, so that afterwards the template's own text can be
told from a user's. Markers are made of private-use characters that no content holds. White space
around a content stays outside them, so that a template that trims contents trims as it always does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetchat.chat.messages import Message
from fleetchat.errors import PromptError, SourceError

_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # plane 15


@dataclass(frozen=True, slots=True)
class Span:
    """Text to encode. Special tokens are meant in the template's own text only (`own`)."""

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class Splice:
    """Ids that enter the prompt as they are."""

    token_ids: tuple[int, ...]


Piece = Span | Splice


class Markers:
    """A pair of marks for each message of one conversation."""

    def __init__(self, texts: Iterable[str]) -> None:
        """`texts` is all text in which the marks must not occur."""
        used = set().union(*texts)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        self._opening, self._closing = next(free), next(free)
        opening, closing = re.escape(self._opening), re.escape(self._closing)
        self._pattern = re.compile(f"({opening}|{closing})(\\d+)(?:{opening}|{closing})")

    def marked(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        """The messages as a template takes them. Generated replies are nothing but their marks."""
        return [
            {"role": message.role.value, "content": self._marked(number, message)}
            for number, message in enumerate(messages)
        ]

    def _marked(self, number: int, message: Message) -> str:
        opening = f"{self._opening}{number}{self._opening}"
        closing = f"{self._closing}{number}{self._closing}"
        if message.token_ids is not None:
            return opening + closing
        core = message.content.strip()
        before, after = message.content.split(core, 1) if core else (message.content, "")
        return before + opening + core + closing + after

    def split(self, rendered: str, messages: Sequence[Message]) -> list[Piece]:
        """The pieces of a rendering, in order.

        Raises SourceError when the template tore a content apart, PromptError when it left one out:
        the model would not see what the user believes it sees.
        """
        pieces: list[Piece] = []
        seen: set[int] = set()
        open_number: int | None = None
        position = 0
        for mark in self._pattern.finditer(rendered):
            number, opens = int(mark[2]), mark[1] == self._opening
            if (open_number is not None) if opens else (open_number != number):
                raise _torn(messages[number], number)
            text = rendered[position : mark.start()]
            if opens:
                _append_text(pieces, text, own=True)
            else:
                _append_content(pieces, text, messages[number])
            seen.add(number)
            open_number = number if opens else None
            position = mark.end()
        if open_number is not None:
            raise _torn(messages[open_number], open_number)
        _append_text(pieces, rendered[position:], own=True)
        _check_complete(seen, messages)
        return pieces


def _append_text(pieces: list[Piece], text: str, *, own: bool) -> None:
    if text:
        pieces.append(Span(text, own))


def _append_content(pieces: list[Piece], text: str, message: Message) -> None:
    if message.token_ids is None:
        _append_text(pieces, text, own=False)
    else:
        pieces.append(Splice(message.token_ids))


def _check_complete(seen: set[int], messages: Sequence[Message]) -> None:
    for number, message in enumerate(messages):
        if number not in seen:
            raise PromptError(
                f"the model's chat template leaves out message {number + 1} ({message.role.value})",
                hint="this model has no place for such a message; leave out the system text",
            )


def _torn(message: Message, number: int) -> SourceError:
    return SourceError(
        f"the model's chat template takes message {number + 1} ({message.role.value}) apart; "
        "such a template cannot be used safely"
    )
