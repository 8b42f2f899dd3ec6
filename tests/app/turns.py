"""Turns for tests."""

from __future__ import annotations

from fleetchat.chat.messages import Message, Role
from fleetchat.chat.turn import Turn


def asking(*contents: str) -> Turn:
    """Messages of the user and replies in turn, the last one from the user."""
    return Turn(
        tuple(
            Message(Role.ASSISTANT if place % 2 else Role.USER, content)
            for place, content in enumerate(contents)
        )
    )
