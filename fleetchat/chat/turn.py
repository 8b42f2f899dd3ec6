"""From the path of a chat to what the model is asked (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import Node


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply that is wanted: everything that was said before, and how to draw it.

    `continues`: the last message is the beginning of the reply itself. `another`: a seed that was not
    used before is taken, whatever is configured.
    """

    messages: tuple[Message, ...]
    options: ChatOptions = field(default_factory=ChatOptions)
    continues: bool = False
    another: bool = False

    @property
    def prompt(self) -> str:
        """What the user typed last."""
        return next((message.content for message in reversed(self.messages) if message.role is Role.USER), "")

    @property
    def number(self) -> int:
        """Which turn of the conversation this is, from 0."""
        return sum(message.role is Role.USER for message in self.messages) - 1


def messages_of(path: Sequence[Node], model: str) -> tuple[Message, ...]:
    """What the model sees of a path.

    A question that was never answered is left out, unless it is the last message: most templates
    refuse two questions in a row, and one refused message must not poison the chat.
    """
    answered = [
        node
        for node, following in zip(path, (*path[1:], None), strict=True)
        if node.text and not (node.role is Role.USER and _is_unanswered(following))
    ]
    return tuple(
        Message(node.role, node.text, node.token_ids if node.model == model else None) for node in answered
    )


def _is_unanswered(following: Node | None) -> bool:
    return following is not None and (following.role is Role.USER or not following.text)
