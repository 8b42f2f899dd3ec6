"""Commands on the fleet: another cut, a peer more, a peer less. The chats go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetchat.app.actions.registry import action
from fleetchat.errors import FleetchatError

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


@action("fleet.rebalance")
async def rebalance(screen: ChatScreen, _argument: str) -> None:
    """The proposal comes as an event, and is asked about then."""
    screen.runtime.propose_cut()


@action("fleet.add")
async def add(screen: ChatScreen, argument: str) -> None:
    if argument:
        address, _, name = argument.partition(" ")
        await _change(screen, lambda: screen.runtime.add_peer(address, name.strip()))
    else:
        _ask(screen, "fleet.add", "Address of the peer: HOST:PORT, and a name")


@action("fleet.remove")
async def remove(screen: ChatScreen, argument: str) -> None:
    if argument:
        await _change(screen, lambda: screen.runtime.remove_peer(argument))
    else:
        _ask(screen, "fleet.remove", "Address or name of the peer")


def _ask(screen: ChatScreen, command_id: str, title: str) -> None:
    def take(typed: str | None) -> None:
        if typed and typed.strip():
            screen.post_message(screen.CommandWanted(command_id, typed.strip()))

    screen.ask_line(title, "", take)


async def _change(screen: ChatScreen, change: Callable[[], str]) -> None:
    try:
        screen.tell(await asyncio.to_thread(change))
    except FleetchatError as error:
        screen.tell(f"{error.message}{f' ({error.hint})' if error.hint else ''}")


async def move(screen: ChatScreen, cut: tuple[tuple[int, int], ...]) -> None:
    """The proposal was accepted."""
    await _change(screen, lambda: screen.runtime.write_cut(cut))
