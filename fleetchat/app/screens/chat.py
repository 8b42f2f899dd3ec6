"""The chat screen: transcript, prompt, stage table. Its state changes only here.

What waits for widgets (sending, the end of a reply, a new chat) is done by message handlers, one after
the other: keys are handled by another task of Textual's and could come between two halves of it.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer

from fleetchat.app import events
from fleetchat.app.events import ChatNumber, RuntimeControl
from fleetchat.app.messages import RuntimeNews
from fleetchat.app.screens.failure import FailureScreen
from fleetchat.app.widgets.fleet_table import FleetTable
from fleetchat.app.widgets.header_line import HeaderLine
from fleetchat.app.widgets.prompt import Prompt
from fleetchat.app.widgets.reply_view import ReplyView
from fleetchat.app.widgets.start_panel import StartPanel
from fleetchat.app.widgets.transcript import Transcript
from fleetchat.app.words import Phase, counted
from fleetchat.fleet.telemetry import Answer, FleetSnapshot

TITLES = {
    Phase.STARTING: "The fleet is starting · you may type already",
    Phase.READY: "Message",
    Phase.WRITING: "Writing · Esc stops",
    Phase.FAILED: "The fleet is not running · Enter shows why",
    Phase.LEAVING: "Leaving …",
}
QUEUED = {
    Phase.WRITING: "Sent when this reply is complete · Esc takes it back",
    Phase.FAILED: "Sent when the fleet is ready · Esc takes it back",
}


class ChatScreen(Screen[None]):
    """One chat on one fleet."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; background: $background; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", id="chat.stop", tooltip="Stop the reply, keep its text"),
        Binding("ctrl+n", "new_chat", "New chat", id="chat.new", tooltip="Begin an empty chat"),
        Binding("end", "follow", "Newest text", show=False, id="chat.follow"),
    ]

    class NewChatWanted(Message, bubble=False):
        """Ctrl+N was pressed."""

    def __init__(self, runtime: RuntimeControl) -> None:
        super().__init__()
        self._runtime = runtime
        self._chat = ChatNumber(1)
        self._phase = Phase.STARTING
        self._queued = False
        self._reply: ReplyView | None = None
        self._model = ""
        self._context_tokens = 0
        self._snapshot: FleetSnapshot | None = None
        self._failure = ("", "")

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield Transcript()
        yield StartPanel()
        yield Prompt()
        yield FleetTable()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()
        self._describe_empty()
        self._set_phase(Phase.STARTING)

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
            case events.SnapshotTaken(snapshot):
                self._show_snapshot(snapshot)
            case events.PrefillProgressed(chat, done, total) if chat == self._chat:
                if self._phase is Phase.WRITING and not self._queued and done < total:
                    self._say(f"Reading the prompt, {done:,} of {counted(total, 'token')} · Esc stops")
            case events.TextArrived(chat, text) if chat == self._chat and self._reply is not None:
                self._reply.append(text)
                self._refresh_words()
            case events.ReplyFinished(chat, answer) if chat == self._chat:
                await self._finish_reply(answer)
            case events.RuntimeFailed(message, hint):
                self._fail(message, hint)

    async def _become_ready(self, model: str, context: int) -> None:
        self._model, self._context_tokens = model, context
        self.query_one(StartPanel).hide()
        self._set_phase(Phase.READY)
        self._describe_empty()
        await self._send_queued()

    def _show_snapshot(self, snapshot: FleetSnapshot) -> None:
        self._snapshot = snapshot
        self.query_one(FleetTable).show(snapshot)
        self._refresh_header()

    async def _finish_reply(self, answer: Answer) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.finish(answer, self._context_tokens)
        if self._phase is Phase.WRITING:
            self._set_phase(Phase.READY)
        await self._send_queued()

    def _fail(self, message: str, hint: str) -> None:
        self._failure = (message, hint)
        self._set_phase(Phase.FAILED)
        self.query_one(StartPanel).hide()
        self._show_failure()

    # What the user does

    @on(Prompt.Submitted)
    async def _submit(self, event: Prompt.Submitted) -> None:
        if not event.text.strip():
            return
        if self._phase is Phase.READY:
            await self._send(event.text)
        else:
            self._queued = True
            self._refresh_words()
            if self._phase is Phase.FAILED:
                self._show_failure()

    @on(Prompt.Changed)
    def _take_back_queued(self) -> None:
        """A message that is edited after Enter is not sent before the next Enter."""
        self._queued = False
        self._refresh_words()

    @on(Transcript.FollowChanged)
    def _note_following(self) -> None:
        self._refresh_words()

    def action_stop(self) -> None:
        if self._queued:
            self._queued = False
            self._refresh_words()
        elif self._phase is Phase.WRITING:
            self._runtime.stop(self._chat)

    def action_new_chat(self) -> None:
        self.post_message(self.NewChatWanted())

    @on(NewChatWanted)
    async def _begin_new_chat(self) -> None:
        """The old chat is closed, with its reply under way; what stands in the prompt stays."""
        self._runtime.close_chat(self._chat)
        self._chat = ChatNumber(self._chat + 1)
        self._reply = None
        await self.query_one(Transcript).clear()
        if self._phase is Phase.WRITING:
            self._set_phase(Phase.READY)
        await self._send_queued()

    @on(Prompt.FollowWanted)
    def action_follow(self) -> None:
        self.query_one(Transcript).follow()

    def action_page_up(self) -> None:
        self.query_one(Transcript).scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self.query_one(Transcript).scroll_page_down(animate=False)

    def action_line_up(self) -> None:
        self.query_one(Transcript).scroll_up(animate=False)

    def action_line_down(self) -> None:
        self.query_one(Transcript).scroll_down(animate=False)

    def say_leaving(self) -> None:
        self._set_phase(Phase.LEAVING)

    # How it comes about

    async def _send_queued(self) -> None:
        if self._queued and self._phase is Phase.READY:
            await self._send(self.query_one(Prompt).text)

    async def _send(self, text: str) -> None:
        self._queued = False
        self.query_one(Prompt).clear_text()
        self._set_phase(Phase.WRITING)
        transcript = self.query_one(Transcript)
        await transcript.add_message(text)
        self._reply = await transcript.begin_reply(self._model)
        self._runtime.submit(self._chat, text)

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
        self._refresh_words()
        self._refresh_header()

    def _refresh_words(self) -> None:
        waiting = QUEUED.get(self._phase, "Sent when the fleet is ready · Esc takes it back")
        self._say(waiting if self._queued else TITLES[self._phase])

    def _say(self, title: str) -> None:
        following = self.query_one(Transcript).following
        self.query_one(Prompt).say(title, "" if following else "↓ End goes to the newest text")

    def _refresh_header(self) -> None:
        snapshot = self._snapshot
        parts: tuple[str, ...] = (self._model,)
        if snapshot is not None:
            parts = (self._model, counted(len(snapshot.stages), "stage"), snapshot.precision)
        self.query_one(HeaderLine).show(parts, self._phase.value)

    def _describe_empty(self) -> None:
        model = f"Chat with {self._model}." if self._model else "Welcome to fleetchat."
        self.query_one(Transcript).describe_empty(
            f"{model}\nType a message, Enter sends. Ctrl+J begins a new line, Esc stops a reply,\n"
            "Ctrl+N starts a new chat, Page Up and Page Down scroll, Ctrl+Q leaves."
        )
