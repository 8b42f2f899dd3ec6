"""Commands on what is shown, and on the reply that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetchat.app.actions.registry import action

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


@action("chat.stop")
async def stop(screen: ChatScreen, _argument: str) -> None:
    screen.stop(screen.pane)


@action("view.follow")
async def follow(screen: ChatScreen, _argument: str) -> None:
    screen.pane.transcript.follow()
