"""A reply in its parts: what the model thought, and what it answered (pure).

Two ways of thinking aloud are known: a leading `<think>…</think>`, whose opening may stand in the template's
generation prompt, and the channels of harmony (GPT-OSS), of which `final` is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from fleetchat.chat.messages import Message, Role
from fleetchat.chat.template import CLOSING, OPENING
from fleetchat.chat.tokenizer import ChatTokenizer

CHANNEL, MESSAGE, FINAL = "<|channel|>", "<|message|>", "final"


@dataclass(frozen=True, slots=True)
class Said:
    """A message as it is given to a template.

    `answer_ids` and `ids` are what was generated: for the answer, and for the reply as a whole; None where
    the text is to be encoded. `thought` None: nothing was thought. `head` and `bridge` are what the reply
    itself wrote before its thought, and between the thought and the answer.
    """

    role: Role
    answer: str
    answer_ids: tuple[int, ...] | None = None
    thought: str | None = None
    head: str = ""
    bridge: str = ""
    ids: tuple[int, ...] | None = None


class _Split(NamedTuple):
    head: str
    thought: str
    bridge: str
    answer: str


def parted(tokenizer: ChatTokenizer, message: Message, opening: str) -> Said:
    """A message in its parts; `opening` is what the generation prompt writes to begin a thought."""
    if message.role is not Role.ASSISTANT:
        return Said(message.role, message.content)
    ids = message.token_ids
    channel, begin = tokenizer.special_id(CHANNEL), tokenizer.special_id(MESSAGE)
    if ids is not None and channel in ids and begin is not None:
        return _by_channel(tokenizer, message, ids, begin)
    whole = Said(message.role, message.content, ids)
    if not (opening or CLOSING in message.content or message.content.lstrip().startswith(OPENING)):
        return whole
    pieces = [message.content] if ids is None else _texts(tokenizer, ids)
    text = "".join(pieces)
    parts = _split(text, opened=bool(opening))
    if parts is None:
        return whole
    answer_ids = None if ids is None else _ids_behind(pieces, ids, len(text) - len(parts.answer))
    return Said(message.role, parts.answer, answer_ids, parts.thought, parts.head, parts.bridge, ids)


def _by_channel(tokenizer: ChatTokenizer, message: Message, ids: tuple[int, ...], begin: int) -> Said:
    """The answer is behind the last `<|channel|>final<|message|>`; all before it was thought."""
    places = [place for place, token in enumerate(ids) if token == begin]
    finals = [place for place in places if _header(tokenizer, ids[:place]).startswith(FINAL)]
    end = finals[-1] + 1 if finals else len(ids)
    return Said(
        message.role, tokenizer.decode(ids[end:]), ids[end:], thought=tokenizer.decode(ids[:end]), ids=None
    )


def _header(tokenizer: ChatTokenizer, ids: Sequence[int]) -> str:
    """The text behind the last `<|channel|>`."""
    channel = tokenizer.special_id(CHANNEL)
    last = max((place for place, token in enumerate(ids) if token == channel), default=len(ids) - 1)
    return tokenizer.decode(ids[last + 1 :])


def _split(text: str, *, opened: bool) -> _Split | None:
    body = text.lstrip()
    lead = text[: len(text) - len(body)]
    before, closing, _ = body.partition(CLOSING)
    if body.startswith(OPENING):
        head, body = lead + OPENING, body.removeprefix(OPENING)
    elif opened or (closing and OPENING not in before):
        head, body = "", text
    else:
        return None
    thought, closing, after = body.partition(CLOSING)
    answer = after.lstrip()
    return _Split(head, thought, closing + after[: len(after) - len(answer)], answer)


def _texts(tokenizer: ChatTokenizer, ids: Sequence[int]) -> list[str]:
    """What each id adds to the text; the last one what a decoder held back."""
    decoder = tokenizer.decoder()
    pieces = []
    for token_id in ids:
        name = tokenizer.token(token_id)
        pieces.append(name if name in (OPENING, CLOSING) else decoder.push(token_id))
    return [*pieces, decoder.finish()]


def _ids_behind(pieces: Sequence[str], ids: tuple[int, ...], offset: int) -> tuple[int, ...] | None:
    """The ids whose text begins at `offset`; None when one id has text on both sides of it."""
    ends = [0, *accumulate(map(len, pieces))]
    return ids[ends.index(offset) :] if offset in ends else None
