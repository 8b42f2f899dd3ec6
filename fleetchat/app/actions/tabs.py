"""Commands on tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetchat.app.actions.registry import action
from fleetchat.app.chat_state import title_of

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


@action("tab.new")
async def new(screen: ChatScreen, _argument: str) -> None:
    await screen.open_chat(screen.new_state())


@action("tab.close")
async def close(screen: ChatScreen, _argument: str) -> None:
    await screen.close_chat(screen.tabs.active)


@action("tab.reopen")
async def reopen(screen: ChatScreen, _argument: str) -> None:
    if not await screen.reopen_chat():
        screen.tell("No tab was closed")


@action("tab.rename")
async def rename(screen: ChatScreen, argument: str) -> None:
    pane = screen.pane

    def take(title: str | None) -> None:
        if title is not None and title.strip():
            screen.rename(pane, title_of(title))

    if argument.strip():
        take(argument)
    else:
        screen.ask_line("Name of this chat", pane.state.title, take)


@action("tab.next")
async def following(screen: ChatScreen, _argument: str) -> None:
    await screen.show_chat(screen.tabs.step(1))


@action("tab.previous")
async def previous(screen: ChatScreen, _argument: str) -> None:
    await screen.show_chat(screen.tabs.step(-1))


@action("tab.right")
async def move_right(screen: ChatScreen, _argument: str) -> None:
    screen.tabs.move(1)
    screen.refresh_tabs()


@action("tab.left")
async def move_left(screen: ChatScreen, _argument: str) -> None:
    screen.tabs.move(-1)
    screen.refresh_tabs()


@action("tab.show")
async def show(screen: ChatScreen, argument: str) -> None:
    number = screen.tabs.by_place(int(argument)) if argument.strip().isdecimal() else None
    if number is None:
        screen.tell(f"There is no chat {argument.strip() or '…'}; there are {len(screen.tabs.numbers)}")
    else:
        await screen.show_chat(number)


def _register_place(place: int) -> None:
    @action(f"tab.{place}")
    async def show_place(screen: ChatScreen, _argument: str) -> None:
        await show(screen, str(place))


for _place in range(1, 10):
    _register_place(_place)
