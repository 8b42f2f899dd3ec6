"""The chat screen: tabs, transcript, prompt, stage table. Its state changes only here.

What waits for widgets (sending, the end of a reply, every command) is done by message handlers, one
after the other: keys are handled by another task of Textual's and could come between two halves of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer

from fleetchat.app import events
from fleetchat.app.actions import ACTIONS
from fleetchat.app.chat_state import ChatState
from fleetchat.app.commands import COMMANDS
from fleetchat.app.events import ChatNumber, RuntimeControl
from fleetchat.app.messages import RuntimeNews
from fleetchat.app.screens.ask_line import AskLineScreen
from fleetchat.app.screens.failure import FailureScreen
from fleetchat.app.tabs import TabList
from fleetchat.app.widgets.chat_pane import ChatPane
from fleetchat.app.widgets.fleet_table import FleetTable
from fleetchat.app.widgets.header_line import HeaderLine
from fleetchat.app.widgets.prompt import Prompt
from fleetchat.app.widgets.start_panel import StartPanel
from fleetchat.app.widgets.tab_bar import TabBar
from fleetchat.app.widgets.transcript import Transcript
from fleetchat.app.words import Phase, counted, header_state, prompt_title
from fleetchat.chat.sanitise import sanitise
from fleetchat.fleet.telemetry import Answer, FleetSnapshot

WELCOME = (
    "Type a message, Enter sends. Ctrl+J begins a new line, Esc stops a reply,\n"
    "Ctrl+N opens a new chat, Page Up and Page Down scroll, Ctrl+Q leaves."
)


class ChatScreen(Screen[None]):
    """Several chats on one fleet."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; background: $background; }
    ChatScreen > #panes { height: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            command.keys,
            f"command('{command.id}')",
            command.title,
            show=command.footer,
            id=command.id,
            tooltip=command.help,
        )
        for command in COMMANDS
        if command.keys
    ]

    @dataclass
    class CommandWanted(Message, bubble=False):
        """A key was pressed, a command was chosen, a slash command was typed."""

        id: str
        argument: str = ""

    def __init__(self, runtime: RuntimeControl) -> None:
        super().__init__()
        self._runtime = runtime
        self._numbers = 0
        first = self.new_state()
        self.tabs = TabList.with_one(first.number)
        self._panes = {first.number: ChatPane(first)}
        self._closed_chats: dict[ChatNumber, ChatState] = {}
        self._phase = Phase.STARTING
        self._model = ""
        self._context_tokens = 0
        self._snapshot: FleetSnapshot | None = None
        self._failure = ("", "")

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield TabBar()
        yield Container(*self._panes.values(), id="panes")
        yield StartPanel()
        yield FleetTable()
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        self._describe_empty(self.pane)
        self._set_phase(Phase.STARTING)
        await self.show_chat(self.tabs.active)

    # What actions work with

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
        pane.state.abandon()
        self._runtime.close_chat(number)
        self._closed_chats[number] = pane.state
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

    def rename(self, pane: ChatPane, title: str) -> None:
        pane.state.title = title
        self.refresh_tabs()

    def stop(self, pane: ChatPane) -> None:
        """Take a message that waits back, or stop the reply."""
        if pane.state.queued:
            pane.state.queued = False
            self._refresh_all()
        elif pane.state.writing is not None:
            self._runtime.stop(pane.state.number)

    def tell(self, text: str) -> None:
        self.app.notify(sanitise(text), markup=False)

    def ask_line(self, title: str, value: str, take: Callable[[str | None], None]) -> None:
        self.app.push_screen(AskLineScreen(title, value), take)

    def refresh_tabs(self) -> None:
        labels = [self._panes[number].state.label for number in self.tabs.numbers]
        self.query_one(TabBar).show(labels, self.tabs.active)

    def refresh_words(self) -> None:
        """The words on the frame of the prompt."""
        pane = self.pane
        hint = "" if pane.transcript.following else "↓ End goes to the newest text"
        pane.prompt.say(prompt_title(self._phase, pane.state), hint)

    # What the runtime says

    @on(RuntimeNews)
    async def _take(self, news: RuntimeNews) -> None:
        """Show an event of the runtime. Events of a chat that was closed are dropped."""
        match news.event:
            case events.BuildProgressed(step, done, total):
                self.query_one(StartPanel).show_build(step, done, total)
            case events.StartProgressed(text):
                self.query_one(StartPanel).show_text(text)
            case events.FleetReady(model, context):
                await self._become_ready(model, context)
            case events.SnapshotTaken(snapshot, speeds):
                self._show_snapshot(snapshot)
                for number, pane in self._panes.items():
                    pane.state.tokens_per_s = speeds.get(number, 0.0)
                self.refresh_tabs()
            case events.PrefillProgressed(chat, done, total) if chat in self._panes:
                self._panes[chat].state.prefill = (done, total) if done < total else None
                self.refresh_words()
            case events.TextArrived(chat, text) if chat in self._panes:
                pane = self._panes[chat]
                await pane.update_reply(pane.state.take(text))
                self.refresh_words()
            case events.ReplyFinished(chat, answer) if chat in self._panes:
                await self._finish_reply(self._panes[chat], answer)
            case events.RuntimeFailed(message, hint):
                self._fail(message, hint)

    async def _become_ready(self, model: str, context: int) -> None:
        self._model, self._context_tokens = model, context
        self.query_one(StartPanel).hide()
        self._set_phase(Phase.READY)
        for pane in tuple(self._panes.values()):
            self._describe_empty(pane)
            await self._send_queued(pane)

    def _show_snapshot(self, snapshot: FleetSnapshot) -> None:
        self._snapshot = snapshot
        self.query_one(FleetTable).show(snapshot)
        self._refresh_header()

    async def _finish_reply(self, pane: ChatPane, answer: Answer) -> None:
        await pane.update_reply(pane.state.finish(answer, seen=pane.shown))
        self._refresh_all()
        await self._send_queued(pane)

    def _fail(self, message: str, hint: str) -> None:
        self._failure = (message, hint)
        self._set_phase(Phase.FAILED)
        self.query_one(StartPanel).hide()
        self._show_failure()

    # What the user does

    def action_command(self, command_id: str) -> None:
        self.post_message(self.CommandWanted(command_id))

    @on(CommandWanted)
    async def _carry_out(self, wanted: CommandWanted) -> None:
        await ACTIONS[wanted.id](self, wanted.argument)

    @on(Prompt.Submitted)
    async def _submit(self, event: Prompt.Submitted) -> None:
        pane = self._pane_of(event)
        if pane is None or not event.text.strip():
            return
        if self._phase is Phase.READY and pane.state.writing is None:
            await self._send(pane, event.text)
        else:
            pane.state.queued = True
            self._refresh_all()
            if self._phase is Phase.FAILED:
                self._show_failure()

    @on(Prompt.Changed)
    def _take_back_queued(self, event: Prompt.Changed) -> None:
        """A message that is edited after Enter is not sent before the next Enter."""
        pane = self._pane_of(event)
        if pane is not None and pane.state.queued:
            pane.state.queued = False
            self._refresh_all()

    def _pane_of(self, event: Message) -> ChatPane | None:
        """The chat whose prompt sent a message; None when its tab was closed meanwhile."""
        sender = event._sender
        return next((pane for pane in self._panes.values() if pane.prompt is sender), None)

    @on(Transcript.FollowChanged)
    def _note_following(self) -> None:
        self.refresh_words()

    @on(Transcript.EarlierWanted)
    async def _show_earlier(self) -> None:
        await self.pane.transcript.show_earlier()

    @on(TabBar.Chosen)
    async def _choose_tab(self, event: TabBar.Chosen) -> None:
        if event.number in self._panes:
            await self.show_chat(event.number)

    @on(TabBar.CloseWanted)
    async def _close_tab(self, event: TabBar.CloseWanted) -> None:
        if event.number in self._panes:
            await self.close_chat(event.number)

    @on(TabBar.NewWanted)
    def _new_tab(self) -> None:
        self.action_command("tab.new")

    @on(Prompt.FollowWanted)
    def _follow(self) -> None:
        self.pane.transcript.follow()

    def action_scroll(self, direction: str) -> None:
        """`page_up`, `page_down`, `up` or `down`, of the transcript."""
        getattr(self.pane.transcript, f"scroll_{direction}")(animate=False)

    def say_leaving(self) -> None:
        self._set_phase(Phase.LEAVING)

    # How it comes about

    async def _mount_pane(self, state: ChatState) -> None:
        pane = self._panes[state.number] = ChatPane(state)
        await self.query_one("#panes").mount(pane)
        self._describe_empty(pane)

    async def _send_queued(self, pane: ChatPane) -> None:
        if pane.state.queued and self._phase is Phase.READY and pane.state.writing is None:
            await self._send(pane, pane.prompt.text)

    async def _send(self, pane: ChatPane, text: str) -> None:
        state = pane.state
        state.queued = False
        pane.prompt.clear_text()
        state.ask(text, time.time())
        state.begin_reply(self._model, time.time())
        if pane.shown:
            await pane.catch_up()
            pane.transcript.follow()
        self._runtime.submit(state.number, state.turn())
        self._refresh_all()

    def _show_failure(self) -> None:
        if not isinstance(self.app.screen, FailureScreen):
            self.app.push_screen(FailureScreen(*self._failure), self._after_failure)

    def _after_failure(self, again: bool | None) -> None:
        if again and self._phase is Phase.FAILED:
            self._snapshot = None
            self.query_one(FleetTable).show(None)
            self._set_phase(Phase.STARTING)
            self.query_one(StartPanel).show_text("Starting the fleet again")
            self._runtime.retry()

    def _set_phase(self, phase: Phase) -> None:
        self._phase = phase
        self._refresh_all()

    def _refresh_all(self) -> None:
        self.refresh_words()
        self.refresh_tabs()
        self._refresh_header()

    def _refresh_header(self) -> None:
        snapshot = self._snapshot
        parts: tuple[str, ...] = (self._model,)
        if snapshot is not None:
            parts = (self._model, counted(len(snapshot.stages), "stage"), snapshot.precision)
        writing = sum(pane.state.writing is not None for pane in self._panes.values())
        speed = snapshot.tokens_per_s if snapshot is not None else 0.0
        self.query_one(HeaderLine).show(parts, header_state(self._phase, writing, speed))

    def _describe_empty(self, pane: ChatPane) -> None:
        pane.transcript.context = self._context_tokens
        model = f"Chat with {self._model}." if self._model else "Welcome to fleetchat."
        pane.transcript.describe_empty(f"{model}\n{WELCOME}")
