"""What the commands do: one module a group, one function a command."""

from fleetchat.app.actions import tabs, view  # they register their functions
from fleetchat.app.actions.registry import ACTIONS

__all__ = ["ACTIONS", "tabs", "view"]
