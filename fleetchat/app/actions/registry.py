"""Which function carries out which command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fleetchat.app.commands import BY_ID

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen

Action = Callable[["ChatScreen", str], Awaitable[None]]

ACTIONS: dict[str, Action] = {}


def action(command_id: str) -> Callable[[Action], Action]:
    """Make a coroutine function the action of a command; it gets the screen and the argument."""
    if command_id not in BY_ID:
        raise KeyError(f"there is no command {command_id}")

    def register(function: Action) -> Action:
        ACTIONS[command_id] = function
        return function

    return register
