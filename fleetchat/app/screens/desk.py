"""The chats in their tabs: opened, closed, shown, stored, and found again by the next run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from textual import on
from textual.message import Message
from textual.screen import Screen

from fleetchat.app.chat_state import ChatState
from fleetchat.app.events import ChatNumber, RuntimeControl
from fleetchat.app.keeper import Keeper
from fleetchat.app.open_tabs import FILE_NAME as TABS_FILE
from fleetchat.app.open_tabs import OpenTabs, read_open_tabs, write_open_tabs
from fleetchat.app.prompt_history import PromptHistory
from fleetchat.app.sparing_compositor import SparingCompositor
from fleetchat.app.tabs import TabList
from fleetchat.app.widgets.chat_pane import ChatPane
from fleetchat.app.widgets.tab_bar import TabBar
from fleetchat.chat.checkpoints import CHECKPOINT
from fleetchat.chat.history import ChatId, StoredChat
from fleetchat.chat.sanitise import sanitise


class Desk(Screen[None]):
    """One pane a tab, one of them shown. Changed by message handlers only."""

    class RestoreWanted(Message, bubble=False):
        """The first paint is done."""

    def __init__(self, runtime: RuntimeControl, keeper: Keeper, state: Path) -> None:
        """`state` is the folder for what the program remembers by itself."""
        super().__init__()
        self._compositor = SparingCompositor()
        self.runtime = runtime
        self.keeper = keeper
        self.state_folder = state
        self.history = PromptHistory()
        self._restored = False
        self._remembered = OpenTabs()
        self._numbers = 0
        first = self.new_state()
        self.tabs = TabList.with_one(first.number)
        self._panes = {first.number: ChatPane(first, self.history)}
        self._closed_chats: dict[ChatNumber, ChatState] = {}

    async def begin(self) -> None:
        """Show the first tab; after the first paint those of the last run."""
        await self.show_chat(self.tabs.active)
        self.set_interval(CHECKPOINT, self._checkpoint)
        self.call_after_refresh(self.post_message, self.RestoreWanted())

    def refresh_words(self) -> None:
        """Another tab is shown, or its state has changed."""

    def describe_empty(self, pane: ChatPane) -> None:
        """Put words into an empty transcript."""

    @property
    def pane(self) -> ChatPane:
        """The chat that is shown."""
        return self._panes[self.tabs.active]

    def new_state(self) -> ChatState:
        self._numbers += 1
        return ChatState(ChatNumber(self._numbers))

    async def open_chat(self, state: ChatState) -> None:
        """Show a chat in a new tab."""
        self.tabs.open(state.number)
        await self._mount_pane(state)
        await self.show_chat(state.number)

    async def close_chat(self, number: ChatNumber) -> None:
        """Close a tab, its reply under way included; the last one makes room for an empty chat."""
        if self.tabs.numbers == [number]:
            state = self.new_state()
            self.tabs.open(state.number)
            await self._mount_pane(state)
        self.tabs.close(number)
        pane = self._panes.pop(number)
        self.keeper.save(pane.state, pane.state.abandon())
        self.runtime.close_chat(number)
        self._closed_chats[number] = pane.state
        pane.state.draft = pane.prompt.text
        if pane.state.is_unused and not pane.state.draft.strip():
            self.tabs.forget(number)
        await self.show_chat(self.tabs.active)
        await pane.remove()

    async def reopen_chat(self) -> bool:
        """Show the tab again that was closed last; False when there is none."""
        number = self.tabs.reopen()
        if number is None:
            return False
        await self._mount_pane(self._closed_chats.pop(number))
        await self.show_chat(number)
        return True

    async def show_chat(self, number: ChatNumber) -> None:
        """Make a tab the one that is seen."""
        self.tabs.active = number
        for pane in self._panes.values():
            pane.set_class(pane.state.number == number, "-shown")
        pane = self._panes[number]
        pane.state.looked_at()
        await pane.catch_up()
        pane.prompt.focus()
        self.refresh_words()
        self.refresh_tabs()
        self.remember_tabs()

    async def open_stored(self, chat: ChatId) -> bool:
        """Show a chat of the store: its tab, or a new one. False when it is gone."""
        for pane in self._panes.values():
            if pane.state.id == chat:
                await self.show_chat(pane.state.number)
                return True
        stored = await self.keeper.chat(chat)
        if stored is None:
            return False
        unused = self.pane if self.pane.state.is_unused and not self.pane.prompt.text else None
        await self.open_chat(self._state_of(stored))
        if unused is not None:
            await self.close_chat(unused.state.number)
        return True

    def rename(self, pane: ChatPane, title: str) -> None:
        pane.state.title = title
        self.keeper.save_title(pane.state)
        self.refresh_tabs()

    def refresh_tabs(self) -> None:
        labels = [self._panes[number].state.label for number in self.tabs.numbers]
        self.query_one(TabBar).show(labels, self.tabs.active)

    @on(RestoreWanted)
    async def _restore(self) -> None:
        """Open the tabs of the last run, and remember its prompts. Nothing is sent by itself."""
        self.history.restore(await self.keeper.start())
        remembered = self._remembered = read_open_tabs(self.state_folder / TABS_FILE)
        begun, shown = self.pane, None
        for chat in remembered.chats:
            stored, draft = await self.keeper.chat(chat), remembered.drafts.get(chat, "")
            if stored is not None or draft:
                state = self._state_of(stored) if stored is not None else self.new_state()
                state.id, state.draft = chat, sanitise(draft)
                self.tabs.open(state.number)
                await self._mount_pane(state)
                shown = state.number if chat == remembered.active or shown is None else shown
        self._restored = True
        if shown is not None:
            keep_begun = begun.prompt.text or not begun.state.is_unused
            await self.show_chat(begun.state.number if keep_begun else shown)
            if not keep_begun:
                await self.close_chat(begun.state.number)

    def _state_of(self, stored: StoredChat) -> ChatState:
        self._numbers += 1
        return ChatState.restored(ChatNumber(self._numbers), stored)

    def remember_tabs(self) -> None:
        """Keep which tabs there are for the next run, and what was typed in them."""
        if not self._restored:
            return
        panes = [self._panes[number] for number in self.tabs.numbers]
        drafts = {pane.state.id: pane.prompt.text for pane in panes if pane.prompt.text.strip()}
        chats = tuple(pane.state.id for pane in panes if pane.state.stored or pane.state.id in drafts)
        active = self.pane.state.id if self.pane.state.id in chats else None
        tabs = OpenTabs(chats, active, drafts)
        if tabs != self._remembered:
            self._remembered = tabs
            self.keeper.write(partial(write_open_tabs, self.state_folder / TABS_FILE, tabs))

    def _checkpoint(self) -> None:
        self.remember_tabs()
        self.keeper.checkpoint(pane.state for pane in self._panes.values())

    async def _mount_pane(self, state: ChatState) -> None:
        pane = self._panes[state.number] = ChatPane(state, self.history)
        await self.query_one("#panes").mount(pane)
        if state.draft:
            pane.prompt.set_text(state.draft)
        self.describe_empty(pane)
