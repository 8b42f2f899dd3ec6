"""The messages of a conversation, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    `token_ids` are the ids that this model generated for a reply, without the stop id; they enter
    every later prompt as they are. None for a text that somebody typed or that another model wrote.
    """

    role: Role
    content: str
    token_ids: tuple[int, ...] | None = None
