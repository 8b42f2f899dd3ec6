"""A conversation as the ids of a prompt that fits the context, or a refusal in numbers (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.chat.conversation import ChatFormat, check_not_empty, check_room
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.prompt import render
from fleetchat.errors import PromptError

ROOM_SHARE = 4  # a quarter of the context at most is kept free for the reply


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """`notes` says in numbers what the model does not see."""

    ids: tuple[int, ...]
    notes: tuple[str, ...] = ()


def fitted_prompt(
    chat_format: ChatFormat,
    messages: Sequence[Message],
    *,
    context: int,
    max_tokens: int,
    drop_oldest: bool,
    continues: bool = False,
) -> FittedPrompt:
    """The ids of `messages`. With `drop_oldest` old turns go until a reply has room.

    `continues`: the last message is the beginning of the reply. Raises PromptError.
    """
    if not continues:
        check_not_empty(messages[-1].content if messages else "")
    kept = list(messages)
    ids = _ids(chat_format, kept, continues)
    whole = len(ids)
    room = min(max_tokens, context // ROOM_SHARE) if drop_oldest else 1
    dropped = 0
    while drop_oldest and len(ids) > context - room and (turn := _oldest_turn(kept, continues)):
        del kept[turn.start : turn.stop]
        dropped += len(turn)
        ids = _ids(chat_format, kept, continues)
    try:
        check_room(ids, context)
    except PromptError as error:
        if not any(message.token_ids is not None for message in messages):
            raise
        raise PromptError(error.message, hint="start a new chat (Ctrl+N)") from error
    notes = (_note(dropped, whole - len(ids), context),) if dropped else ()
    return FittedPrompt(ids, notes)


def _ids(chat_format: ChatFormat, messages: Sequence[Message], continues: bool) -> tuple[int, ...]:
    before = messages[:-1] if continues else messages
    ids = render(chat_format.tokenizer, chat_format.template, before, add_generation_prompt=True).ids
    if not continues:
        return ids
    begun = messages[-1]
    own = begun.token_ids
    return (*ids, *(chat_format.tokenizer.encode(begun.content, specials=False) if own is None else own))


def _oldest_turn(messages: Sequence[Message], continues: bool) -> range | None:
    """The places of the oldest question and its reply; None when only the present turn is left."""
    start = next((place for place, one in enumerate(messages) if one.role is not Role.SYSTEM), 0)
    last = max((place for place, one in enumerate(messages) if one.role is Role.USER), default=0)
    stop = start + 1
    while stop < len(messages) and messages[stop].role is not Role.USER:
        stop += 1
    return range(start, stop) if stop <= last else None


def _note(messages: int, tokens: int, context: int) -> str:
    noun = "message was" if messages == 1 else "messages were"
    return (
        f"{messages:,} old {noun} left out of the prompt ({tokens:,} tokens): "
        f"the context holds {context:,} tokens"
    )
