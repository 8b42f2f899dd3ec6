"""From the path of a chat to what the model is asked (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import MessageId, Node, Status


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
    left_out = unanswered(path)
    answered = [node for node in path if node.text and node.id not in left_out]
    return tuple(
        Message(node.role, node.text, node.token_ids if node.model == model else None) for node in answered
    )


def unanswered(path: Sequence[Node]) -> frozenset[MessageId]:
    """The questions of a path that later replies are written without."""
    return frozenset(
        node.id for node, following in pairwise(path) if node.role is Role.USER and _is_unanswered(following)
    )


def _is_unanswered(following: Node) -> bool:
    if following.role is Role.USER:
        return True
    return not following.text and following.status is not Status.WRITING
