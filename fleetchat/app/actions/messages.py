"""Commands on messages: regenerate, continue, edit, other branches, copy."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from fleetchat.app.actions import replies
from fleetchat.app.actions.registry import action
from fleetchat.app.actions.replies import may_write
from fleetchat.app.clipboard import copied_by
from fleetchat.app.code_blocks import code_blocks
from fleetchat.app.words import counted
from fleetchat.chat.messages import Role
from fleetchat.chat.sanitise import sanitise
from fleetchat.chat.tree import Node
from fleetchat.config.remembered import write_private

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen


def chosen(screen: ChatScreen, role: Role | None) -> Node | None:
    """The selected message, else the last one; only of `role` when one is given."""
    path = screen.pane.state.path
    selected = screen.pane.transcript.selected
    nodes = [node for node in path if selected is None or node.id == selected]
    return next((node for node in reversed(nodes) if role is None or node.role is role), None)


@action("message.regenerate")
async def regenerate(screen: ChatScreen, _argument: str) -> None:
    """Also the way to try again after an error, and to answer a message that was never answered."""
    pane = screen.pane
    node = chosen(screen, None)
    if node is None:
        screen.tell("There is no reply yet")
    elif may_write(screen, pane):
        await replies.regenerate(screen, pane, node)


@action("message.continue")
async def go_on(screen: ChatScreen, _argument: str) -> None:
    pane = screen.pane
    path = pane.state.path
    if not path or path[-1].role is not Role.ASSISTANT or not path[-1].text:
        screen.tell("There is no reply to go on with")
    elif may_write(screen, pane):
        await replies.continue_reply(screen, pane)


@action("message.edit")
async def edit(screen: ChatScreen, _argument: str) -> None:
    pane = screen.pane
    node = chosen(screen, Role.USER)
    if node is None:
        screen.tell("Select a message of yours (Alt+K, Alt+J)")
        return
    pane.state.editing = node.id
    pane.prompt.set_text(sanitise(node.text))
    pane.prompt.focus()
    screen.refresh_words()


@action("message.version")
async def version(screen: ChatScreen, _argument: str) -> None:
    state = screen.pane.state
    if state.writing is not None:
        screen.tell("Not while a reply is written")
        return
    selected = chosen(screen, None) if screen.pane.transcript.selected is not None else None
    branching = [node for node in state.path if len(state.tree.versions(node.id)) > 1]
    node = selected if selected in branching else (branching[-1] if branching else None)
    if node is None:
        screen.tell("This chat has no other version")
        return
    await show_version(screen, node)


@action("message.up")
async def up(screen: ChatScreen, _argument: str) -> None:
    screen.pane.transcript.select(-1)


@action("message.down")
async def down(screen: ChatScreen, _argument: str) -> None:
    screen.pane.transcript.select(1)


@action("message.copy")
async def copy(screen: ChatScreen, _argument: str) -> None:
    selected = screen.pane.transcript.selected is not None
    node = chosen(screen, None if selected else Role.ASSISTANT)
    if node is None or not node.text:
        screen.tell("There is nothing to copy yet")
    else:
        await put_on_clipboard(screen, sanitise(node.text), "message")


@action("message.code")
async def code(screen: ChatScreen, argument: str) -> None:
    """The last block, or the one with a number from 1."""
    node = chosen(screen, Role.ASSISTANT)
    blocks = code_blocks(sanitise(node.text)) if node is not None else []
    if not blocks:
        screen.tell("There is no code block in this message")
        return
    place = int(argument) if argument.isdecimal() else len(blocks)
    if not 1 <= place <= len(blocks):
        screen.tell(f"The message has {counted(len(blocks), 'code block')}")
        return
    await put_on_clipboard(screen, blocks[place - 1], f"code block {place} of {len(blocks)}")


@action("message.thought")
async def thought(screen: ChatScreen, _argument: str) -> None:
    if not screen.pane.transcript.toggle_thoughts():
        screen.tell("No thought is shown here")


async def show_version(screen: ChatScreen, node: Node) -> None:
    """Show the next branch of a message that has several."""
    pane = screen.pane
    pane.state.show_next_version(node)
    screen.keeper.save_head(pane.state)
    await pane.catch_up()


async def put_on_clipboard(screen: ChatScreen, text: str, what: str) -> None:
    """Copy, and say what is known of it: a terminal never tells whether it took the text."""
    tool = await asyncio.to_thread(copied_by, text, os.environ)
    if tool is not None:
        screen.tell(f"Copied the {what} ({tool})")
        return
    screen.app.copy_to_clipboard(text)
    sent = f"Sent the {what} to the terminal's clipboard"
    file = screen.state_folder / "copied.txt"
    try:
        await asyncio.to_thread(write_private, file, text.encode("utf-8", "replace"))
    except OSError:
        screen.tell(f"{sent}; not every terminal takes it")
    else:
        screen.tell(f"{sent}; if it did not take it: {file}")
