"""The chat screen: tabs, transcript, prompt, fleet. Its state changes only here.

What waits for widgets (sending, the end of a reply, every command) is done by message handlers, one
after the other: keys are handled by another task of Textual's and could come between two halves of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap
from textual.message import Message
from textual.widgets import Footer

from fleetchat.app import events
from fleetchat.app.actions import ACTIONS
from fleetchat.app.actions.fleet import move
from fleetchat.app.actions.replies import send
from fleetchat.app.commands import COMMANDS, Command, SlashCommand, parse_slash
from fleetchat.app.events import ChatNumber, RuntimeControl
from fleetchat.app.help_text import Situation
from fleetchat.app.keeper import Keeper
from fleetchat.app.keymap import KeyMap
from fleetchat.app.messages import RuntimeNews
from fleetchat.app.screens.ask_line import AskLineScreen
from fleetchat.app.screens.failure import FailureScreen
from fleetchat.app.screens.fleet_desk import FleetDesk
from fleetchat.app.screens.proposal import ProposalScreen
from fleetchat.app.theme import LoadedThemes
from fleetchat.app.widgets.chat_pane import ChatPane
from fleetchat.app.widgets.header_line import HeaderLine
from fleetchat.app.widgets.prompt import Prompt
from fleetchat.app.widgets.start_panel import StartPanel
from fleetchat.app.widgets.suggestions import Suggestions
from fleetchat.app.widgets.tab_bar import TabBar
from fleetchat.app.widgets.transcript import Transcript
from fleetchat.app.words import Phase, context_words, counted, header_state, prompt_title
from fleetchat.chat.history import ChatId
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.sanitise import sanitise
from fleetchat.fleet.telemetry import Answer

WELCOME = (
    "Type a message, Enter sends. Ctrl+J begins a new line, Esc stops a reply.\n"
    "Ctrl+N opens a new chat, F3 finds old ones, F4 changes the colours,\n"
    "F1 shows all keys and commands, Ctrl+Q leaves."
)


def command_bindings(keys: KeyMap) -> list[Binding]:
    """What the keys do, and what the footer shows."""
    return [
        Binding(
            keys.keys[command.id],
            f"command('{command.id}')",
            command.title,
            show=command.footer,
            id=command.id,
            tooltip=command.help,
        )
        for command in COMMANDS
        if command.id in keys.keys
    ]


class ChatScreen(FleetDesk):
    """Several chats on one fleet."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; background: $background; }
    """

    @dataclass
    class ChatWanted(Message, bubble=False):
        """A stored chat was chosen."""

        id: ChatId

    @dataclass
    class DeleteWanted(Message, bubble=False):
        """The user is sure."""

        number: ChatNumber

    def __init__(self, runtime: RuntimeControl, keeper: Keeper, state: Path, keys: KeyMap) -> None:
        """`state` is the folder for what the program remembers by itself."""
        super().__init__(runtime, keeper, state)
        self._bindings = BindingsMap(command_bindings(keys))
        self.keys, self.command_keys = keys, keys.keys
        self.phase = Phase.STARTING
        self.model = ""
        self.themes = LoadedThemes((), ())
        self.configured: ChatOptions | None = None  # what holds for a chat that sets nothing; None: not known
        self._context_tokens = 0
        self._failure = ("", "")

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield TabBar()
        yield from self.compose_middle()
        yield StartPanel()
        yield from self.compose_line()
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        self.describe_empty(self.pane)
        self._set_phase(Phase.STARTING)
        await self.begin()

    # What actions work with

    def stop(self, pane: ChatPane) -> None:
        """Take a message that waits back, leave an edit or a selection, or stop the reply."""
        if pane.state.queued:
            pane.state.queued = False
            self.refresh_all()
        elif pane.state.editing is not None:
            pane.state.editing = None
            pane.prompt.clear_text()
            self.refresh_words()
        elif pane.transcript.selected is not None:
            pane.transcript.point_at(None)
        elif pane.state.writing is not None:
            self.runtime.stop(pane.state.number)

    def tell(self, text: str) -> None:
        self.app.notify(sanitise(text), markup=False)

    def key_names(self, command: Command) -> str:
        return self.keys.shown(command.id)

    def situation(self) -> Situation:
        """Where the user is; help begins with what can be done there."""
        pane = self.pane
        selected = next((node for node in pane.state.path if node.id == pane.transcript.selected), None)
        return Situation(self.phase, pane.state, pane.prompt.text, selected, pane.transcript.following)

    def ask_line(self, title: str, value: str, take: Callable[[str | None], None]) -> None:
        self.app.push_screen(AskLineScreen(title, value), take)

    def refresh_words(self) -> None:
        """The words on the frame of the prompt."""
        pane = self.pane
        hint = context_words(pane.state, pane.prompt.text, self._context_tokens)
        if not pane.transcript.following:
            hint = " · ".join(part for part in (hint, "↓ End goes to the newest text") if part)
        pane.prompt.say(prompt_title(self.phase, pane.state), hint)

    def _refresh_words_of(self, chat: ChatNumber) -> None:
        if chat == self.tabs.active:
            self.refresh_words()

    # What the runtime says

    @on(RuntimeNews)
    async def _take(self, news: RuntimeNews) -> None:
        for event in news.events:
            await self._take_event(event)

    async def _take_event(self, event: events.RuntimeEvent) -> None:
        """Show an event of the runtime. Events of a chat that was closed are dropped."""
        match event:
            case events.BuildProgressed(step, done, total):
                self.query_one(StartPanel).show_build(step, done, total)
            case events.StartProgressed(text):
                self.query_one(StartPanel).show_text(text)
            case events.FleetReady(model, context, configured):
                self.configured = configured
                await self._become_ready(model, context)
            case events.SnapshotTaken() as taken:
                self._show_snapshot(taken)
            case events.PrefillProgressed(chat, done, total) if chat in self._panes:
                self._panes[chat].state.prefill = (done, total) if done < total else None
                self._refresh_words_of(chat)
            case events.TextArrived(chat, text) if chat in self._panes:
                pane = self._panes[chat]
                await pane.update_reply(pane.state.take(text))
                self.keeper.note_text(pane.state)
                self._refresh_words_of(chat)
            case events.ReplyFinished(chat, answer) if chat in self._panes:
                await self._finish_reply(self._panes[chat], answer)
            case events.RuntimeFailed(message, hint):
                self._fail(message, hint)
            case events.CutProposed(lines, cut):
                self.app.push_screen(
                    ProposalScreen(lines, asks=bool(cut)), partial(self._after_proposal, cut)
                )
            case events.Told(text):
                self.tell(text)

    async def _after_proposal(self, cut: tuple[tuple[int, int], ...], wanted: bool | None) -> None:
        if wanted:
            await move(self, cut)

    async def _become_ready(self, model: str, context: int) -> None:
        self.model, self._context_tokens = model, context
        self.query_one(StartPanel).hide()
        self._set_phase(Phase.READY)
        for pane in tuple(self._panes.values()):
            self.describe_empty(pane)
            await self._send_queued(pane)

    def _show_snapshot(self, taken: events.SnapshotTaken) -> None:
        self.take_fleet(taken)
        if self.phase is Phase.READY and not (taken.snapshot.trouble or taken.snapshot.moving):
            self.query_one(StartPanel).hide()  # what a recovery or a move said there is over
        self._refresh_header()
        for number, pane in self._panes.items():
            pane.state.tokens_per_s = taken.speeds.get(number, 0.0)
        self.refresh_tabs()

    async def _finish_reply(self, pane: ChatPane, answer: Answer) -> None:
        node = pane.state.finish(answer, seen=pane.shown)
        self.keeper.save(pane.state, node)
        await pane.update_reply(node)
        self.refresh_all()
        await self._send_queued(pane)

    def _fail(self, message: str, hint: str) -> None:
        self._failure = (message, hint)
        self._set_phase(Phase.FAILED)
        self.query_one(StartPanel).hide()
        self._show_failure()

    # What the user does

    @on(FleetDesk.CommandWanted)
    async def _carry_out(self, wanted: FleetDesk.CommandWanted) -> None:
        if wanted.id != "view.panel":  # which opened it, and was typed once more before it had
            self.leave_full(wanted.id)
        if not self.is_active:
            return  # a key typed before the dialogue was there that covers the chat now
        await ACTIONS[wanted.id](self, wanted.argument)

    @on(Prompt.Submitted)
    async def _submit(self, event: Prompt.Submitted) -> None:
        pane = self._pane_of(event.prompt)
        if pane is None or not event.text.strip():
            return
        slash = parse_slash(event.text)
        if slash is not None:
            await self._carry_out_typed(pane, slash)
            return
        if self.phase is Phase.READY and pane.state.writing is None:
            await send(self, pane, event.text)
        else:
            pane.state.queued = True
            self.refresh_all()
            if self.phase is Phase.FAILED:
                self._show_failure()

    async def _carry_out_typed(self, pane: ChatPane, slash: SlashCommand) -> None:
        if slash.command is None:
            offered = pane.suggestions.pointed_at()
            if offered is not None:
                pane.prompt.complete(offered)
            else:
                self.tell(slash.complaint)
            return
        pane.prompt.clear_text()
        await ACTIONS[slash.command.id](self, slash.argument)

    @on(Suggestions.Taken)
    def _take_suggestion(self, event: Suggestions.Taken) -> None:
        self.pane.prompt.complete(event.command)
        self.pane.prompt.focus()

    @on(Prompt.Changed)
    def _note_typed(self, event: Prompt.Changed) -> None:
        """A message that is edited after Enter is not sent before the next Enter."""
        pane = self._pane_of(event.text_area)
        if pane is None:
            return
        pane.suggestions.offer(pane.prompt.text)
        self.refresh_words()
        if pane.state.queued:
            pane.state.queued = False
            self.refresh_all()

    @on(ChatWanted)
    async def _open_wanted(self, wanted: ChatWanted) -> None:
        if not await self.open_stored(wanted.id):
            self.tell("This chat is gone")

    @on(DeleteWanted)
    async def _delete_wanted(self, wanted: DeleteWanted) -> None:
        pane = self._panes.get(wanted.number)
        if pane is not None:
            await self.close_chat(wanted.number)
            self._closed_chats.pop(wanted.number, None)
            self.tabs.forget(wanted.number)
            self.keeper.remove_chat(pane.state.id)

    def _pane_of(self, prompt: object) -> ChatPane | None:
        """The chat of a prompt; None when its tab was closed meanwhile."""
        return next((pane for pane in self._panes.values() if pane.prompt is prompt), None)

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
        if direction.endswith("up"):
            self.pane.transcript.want_earlier()

    def say_leaving(self) -> None:
        """The program ends: what was written so far is kept."""
        self._set_phase(Phase.LEAVING)
        self.remember_tabs()
        for pane in self._panes.values():
            self.keeper.save(pane.state, pane.state.abandon())

    # How it comes about

    async def _send_queued(self, pane: ChatPane) -> None:
        if pane.state.queued and self.phase is Phase.READY and pane.state.writing is None:
            await send(self, pane, pane.prompt.text)

    def _show_failure(self) -> None:
        if not isinstance(self.app.screen, FailureScreen):
            self.app.push_screen(FailureScreen(*self._failure), self._after_failure)

    def _after_failure(self, again: bool | None) -> None:
        if again and self.phase is Phase.FAILED:
            self.expect_fleet("Starting the fleet again")
            self.runtime.retry()

    def expect_fleet(self, words: str) -> None:
        """A fleet is being started; nothing can be sent before it is ready."""
        self.forget_fleet()
        self._set_phase(Phase.STARTING)
        self.query_one(StartPanel).show_text(words)

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.refresh_all()

    def refresh_all(self) -> None:
        self.refresh_words()
        self.refresh_tabs()
        self._refresh_header()

    def _refresh_header(self) -> None:
        snapshot = self.fleet.view.snapshot if self.fleet.view is not None else None
        parts: tuple[str, ...] = (self.model,)
        if snapshot is not None:
            parts = (
                self.model,
                counted(len(snapshot.stages), "stage"),
                snapshot.precision,
                self._recording(),
            )
        writing = sum(pane.state.writing is not None for pane in self._panes.values())
        speed = snapshot.tokens_per_s if snapshot is not None else 0.0
        trouble = snapshot is not None and bool(snapshot.trouble)
        state = header_state(self.phase, writing, speed, trouble=trouble)
        self.query_one(HeaderLine).show(parts, state)

    def _recording(self) -> str:
        if self.recorder is None:
            return ""
        return f"recording ended: {self.recorder.ended}" if self.recorder.ended else "recording"

    def describe_empty(self, pane: ChatPane) -> None:
        pane.transcript.context = self._context_tokens
        model = f"Chat with {self.model}." if self.model else "Welcome to fleetchat."
        pane.transcript.describe_empty(f"{model}\n{WELCOME}")
