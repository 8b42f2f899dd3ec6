"""How a reply comes about: a message is sent, drawn anew, or gone on with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fleetchat.app.widgets.chat_pane import ChatPane
from fleetchat.app.words import Phase
from fleetchat.chat.tree import Node

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


def may_write(screen: ChatScreen, pane: ChatPane) -> bool:
    """Whether a reply can be begun now; says why not."""
    if screen.phase is not Phase.READY:
        screen.tell("The fleet is not ready")
    elif pane.state.writing is not None:
        screen.tell("A reply is being written; Esc stops it")
    else:
        return True
    return False


async def send(screen: ChatScreen, pane: ChatPane, text: str) -> None:
    """The user's message is stored before anything is generated."""
    state = pane.state
    state.queued = False
    screen.history.add(text)
    pane.prompt.clear_text()
    asked = state.ask(text, time.time())
    await _submit(screen, pane, state.begin_reply(screen.model, time.time()), asked)


async def regenerate(screen: ChatScreen, pane: ChatPane, node: Node) -> None:
    reply, gone = pane.state.regenerate(node, screen.model, time.time())
    if gone is not None:
        screen.keeper.remove_message(gone)
    await _submit(screen, pane, reply, another=True)


async def continue_reply(screen: ChatScreen, pane: ChatPane) -> None:
    await _submit(screen, pane, pane.state.begin_continuation(screen.model))


async def _submit(
    screen: ChatScreen, pane: ChatPane, reply: Node, *before: Node, another: bool = False
) -> None:
    if pane.shown:
        await pane.catch_up()
        pane.transcript.follow()
    screen.refresh_all()
    await screen.keeper.begin(pane.state, (*before, reply))
    screen.remember_tabs()
    screen.runtime.submit(pane.state.number, pane.state.turn(another=another))
