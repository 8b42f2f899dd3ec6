"""What the commands do: one module a group, one function a command."""

from fleetchat.app.actions import chats, fleet, messages, program, tabs  # they register their functions
from fleetchat.app.actions.registry import ACTIONS

__all__ = ["ACTIONS", "chats", "fleet", "messages", "program", "tabs"]
