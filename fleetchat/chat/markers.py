"""Which characters of a rendered template came from which message (pure).

Contents enter the template between two markers, so that afterwards the template's own text can be
told from a user's. Markers are made of private-use characters that no content holds. White space
around a content stays outside them, so that a template that trims contents trims as it always does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetchat.chat.template import CLOSING, OPENING, ChatTemplate
from fleetchat.chat.thoughts import Said
from fleetchat.errors import PromptError, SourceError

_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # plane 15


@dataclass(frozen=True, slots=True)
class Span:
    """Text to encode. Special tokens are meant in the template's own text only (`own`)."""

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What the template wrote of a message: of its thought, or of its content."""

    number: int
    of_thought: bool
    text: str


Piece = Span | Part


class Markers:
    """Pairs of marks for the messages of one conversation."""

    def __init__(self, template: ChatTemplate, messages: Sequence[Said], opening: str) -> None:
        """`opening` is what a thought begins with that the reply did not begin itself."""
        self._messages = messages
        self._opening_text = opening or OPENING
        self._inline = template.takes_thoughts
        self._keys = template.thought_keys
        texts = [template.source, *(text for one in messages for text in (one.answer, one.thought or ""))]
        used = set().union(*texts)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        self._opening, self._closing = next(free), next(free)
        opening, closing = re.escape(self._opening), re.escape(self._closing)
        self._pattern = re.compile(f"({opening}|{closing})(\\d+)(?:{opening}|{closing})")

    def marked(self, *, typed: bool = True) -> list[dict[str, str]]:
        """The messages as a template takes them. Generated answers are nothing but their marks.

        A thought stands in the content of a template that knows `</think>`, under the key of one that looks
        for it there, and is kept from any other. Not `typed`: what was typed has no marks.
        """
        return [self._message(number, one, typed) for number, one in enumerate(self._messages)]

    def _message(self, number: int, one: Said, typed: bool) -> dict[str, str]:
        content = self._content(2 * number, one, typed)
        if one.thought is None:
            return {"role": one.role.value, "content": content}
        thought = self._around(2 * number + 1, one.thought)
        if self._inline:
            head, bridge = one.head or self._opening_text, one.bridge or CLOSING
            return {"role": one.role.value, "content": head + thought + bridge + content}
        return {"role": one.role.value, "content": content, **dict.fromkeys(self._keys, thought)}

    def _content(self, slot: int, one: Said, typed: bool) -> str:
        if one.answer_ids is not None:
            return self._around(slot, "")
        return self._around(slot, one.answer) if typed else one.answer

    def _around(self, slot: int, text: str) -> str:
        core = text.strip()
        before, after = text.split(core, 1) if core else (text, "")
        opening = f"{self._opening}{slot}{self._opening}"
        return f"{before}{opening}{core}{self._closing}{slot}{self._closing}{after}"

    def split(self, rendered: str) -> list[Piece]:
        """The pieces of a rendering, in order. Raises SourceError when the template tore a content apart."""
        pieces: list[Piece] = []
        open_slot: int | None = None
        position = 0
        for mark in self._pattern.finditer(rendered):
            slot, opens = int(mark[2]), mark[1] == self._opening
            if (open_slot is not None) if opens else (open_slot != slot):
                raise self._torn(slot)
            text = rendered[position : mark.start()]
            if not opens:
                pieces.append(Part(slot // 2, slot % 2 == 1, text))
            elif text:
                pieces.append(Span(text, own=True))
            open_slot = slot if opens else None
            position = mark.end()
        if open_slot is not None:
            raise self._torn(open_slot)
        rest = rendered[position:]
        return [*pieces, Span(rest, own=True)] if rest else pieces

    def check_complete(self, pieces: Iterable[Piece]) -> None:
        """Raise PromptError when a content was left out: the model would not see what the user believes."""
        seen = {piece.number for piece in pieces if isinstance(piece, Part) and not piece.of_thought}
        for number, message in enumerate(self._messages):
            if number not in seen:
                raise PromptError(
                    f"the model's chat template leaves out message {number + 1} ({message.role.value})",
                    hint="this model has no place for such a message; leave out the system text",
                )

    def _torn(self, slot: int) -> SourceError:
        number = slot // 2
        return SourceError(
            f"the model's chat template takes message {number + 1} ({self._messages[number].role.value}) "
            "apart; such a template cannot be used safely"
        )
