"""What of the chats on the screen is written to the store, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from fleetchat.app.archive import Archive
from fleetchat.app.chat_state import ChatState
from fleetchat.chat.checkpoints import grown_enough
from fleetchat.chat.history import ChatId, ChatSummary, History, Hit, StoredChat
from fleetchat.chat.tree import MessageId, Node
from fleetchat.errors import HistoryError

Result = TypeVar("Result")

PROMPTS = 500  # remembered across restarts


class Keeper:
    """`complain` is told once when nothing can be saved; the chat goes on without."""

    def __init__(self, archive: Archive, complain: Callable[[str], None]) -> None:
        self._archive = archive
        self._complain = complain
        self._complained = False
        self._saved: dict[MessageId, int] = {}  # characters of replies under way that were saved

    async def begin(self, state: ChatState, nodes: Iterable[Node]) -> None:
        """Save messages before anything is generated; the chat itself with the first of them."""
        added = tuple(nodes)
        state.stored = True
        title, created, options, head = state.title, state.path[0].created, state.options, state.head

        def job(history: History) -> None:
            history.add_chat(state.id, title, created, options)
            for node in added:
                history.put(state.id, node)
            history.set_head(state.id, head)

        await self._settled(self._archive.post(job))

    def checkpoint(self, states: Iterable[ChatState]) -> None:
        """Save the text of all replies under way, where there is more of it."""
        for state in states:
            if state.writing is None:
                continue
            node = state.tree.node(state.writing)
            if len(node.text) != self._saved.get(node.id, 0):
                self._checkpoint(node)

    def note_text(self, state: ChatState) -> None:
        """Save the beginning of a reply as it comes: all of it is new when the first `checkpoint` is due."""
        if state.writing is not None:
            node = state.tree.node(state.writing)
            if grown_enough(len(node.text), self._saved.get(node.id, 0)):
                self._checkpoint(node)

    def _checkpoint(self, node: Node) -> None:
        self._saved[node.id] = len(node.text)
        self._post(partial(_checkpoint, node=node))

    def save(self, state: ChatState, node: Node | None) -> None:
        """A reply is complete."""
        if node is not None:
            self._saved.pop(node.id, None)
            self._post(lambda history: history.put(state.id, node))

    def save_title(self, state: ChatState) -> None:
        title = state.title
        if state.stored:
            self._post(lambda history: history.rename(state.id, title))

    def save_options(self, state: ChatState) -> None:
        options = state.options
        if state.stored:
            self._post(lambda history: history.set_options(state.id, options))

    def save_head(self, state: ChatState) -> None:
        head = state.head
        if state.stored:
            self._post(lambda history: history.set_head(state.id, head))

    def remove_message(self, node: Node) -> None:
        self._post(lambda history: history.remove_message(node.id))

    def remove_chat(self, chat: ChatId) -> None:
        self._post(lambda history: history.remove_chat(chat))

    async def start(self) -> list[str]:
        """Mark what an earlier run left unfinished; the prompts that are remembered."""

        def job(history: History) -> list[str]:
            history.mark_interrupted()
            return history.recent_prompts(PROMPTS)

        return await self._settled(self._archive.post(job)) or []

    async def chat(self, chat: ChatId) -> StoredChat | None:
        return await self._settled(self._archive.post(lambda history: history.chat(chat)))

    async def chats(self, limit: int) -> list[ChatSummary]:
        return await self._settled(self._archive.post(lambda history: history.chats(limit))) or []

    async def search(self, query: str) -> list[Hit]:
        return await self._settled(self._archive.post(lambda history: history.search(query))) or []

    def write(self, job: Callable[[], object]) -> None:
        """Have a file written in its turn, after what was to be saved before. An OSError is only logged."""
        self._archive.post(lambda _history: job())

    def close(self, timeout: float) -> bool:
        return self._archive.close(timeout)

    def _post(self, job: Callable[[History], object]) -> None:
        self._archive.post(job).add_done_callback(self._note)

    def _note(self, future: Future[object]) -> None:
        """Called on the archive's thread."""
        if isinstance(error := future.exception(), HistoryError):
            self._say(error)

    async def _settled(self, future: Future[Result]) -> Result | None:
        try:
            return await asyncio.wrap_future(future)
        except HistoryError as error:
            self._say(error)
            return None

    def _say(self, error: HistoryError) -> None:
        if not self._complained:
            self._complained = True
            self._complain(f"Chats are not saved: {error.message}")


def _checkpoint(history: History, node: Node) -> None:
    history.checkpoint(node.id, node.text)
