"""Commands on stored chats and on what a chat sets for itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.app.actions.registry import action
from fleetchat.app.option_words import changed_words, options_words
from fleetchat.app.screens.confirm import ConfirmScreen
from fleetchat.app.screens.find_chat import FindChatScreen
from fleetchat.chat.export import as_json, as_markdown
from fleetchat.chat.history import ChatId, StoredChat
from fleetchat.chat.sanitise import sanitise

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


@action("chat.find")
async def find(screen: ChatScreen, argument: str) -> None:
    def take(chat: ChatId | None) -> None:
        if chat is not None:
            screen.post_message(screen.ChatWanted(chat))

    screen.app.push_screen(FindChatScreen(screen.keeper, argument), take)


@action("chat.export")
async def export(screen: ChatScreen, argument: str) -> None:
    state = screen.pane.state
    if not state.path:
        screen.tell("There is nothing to export yet")
        return
    path = _export_path(argument)
    chat = StoredChat(state.id, state.title, state.path[0].created, state.options, state.head, state.tree)
    text = as_json([chat]) if path.suffix == ".json" else sanitise(as_markdown(chat))
    try:
        await asyncio.to_thread(_write_new, path, text)
    except OSError as error:
        screen.tell(f"{path} cannot be written: {error.strerror}")
    else:
        screen.tell(f"Written to {path}")


def _export_path(argument: str) -> Path:
    name = argument or f"chat-{time.strftime('%Y%m%d-%H%M%S')}.md"
    return Path(name).expanduser().absolute()


def _write_new(path: Path, text: str) -> None:
    """Never over another file."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


@action("chat.delete")
async def delete(screen: ChatScreen, _argument: str) -> None:
    pane = screen.pane

    def take(sure: bool | None) -> None:
        if sure:
            screen.post_message(screen.DeleteWanted(pane.state.number))

    title = sanitise(pane.state.shown_title)
    screen.app.push_screen(
        ConfirmScreen(f"Remove “{title}” for good, with all its messages?", "Remove"), take
    )


@action("chat.system")
async def system(screen: ChatScreen, argument: str) -> None:
    state = screen.pane.state

    def take(text: str | None) -> None:
        if text is not None:
            change_option(screen, "system", text)

    if argument:
        take(argument)
    else:
        screen.ask_line("System prompt of this chat (empty: as configured)", state.options.system or "", take)


@action("chat.set")
async def set_option(screen: ChatScreen, argument: str) -> None:
    """Without an argument: what is set, and what can be."""
    pane = screen.pane
    if not argument:
        screen.tell(options_words(pane.state.options, screen.configured))
        return
    name, _, value = argument.partition(" ")
    change_option(screen, name, value)


def change_option(screen: ChatScreen, name: str, value: str) -> None:
    """Set an option of the chat that is shown to what was typed."""
    state = screen.pane.state
    try:
        state.options = state.options.changed(name, value)
    except ValueError as error:
        screen.tell(str(error))
        return
    screen.keeper.save_options(state)
    screen.tell(changed_words(state.options, name))
