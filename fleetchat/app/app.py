"""The application: composes and binds."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, InvalidThemeError, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.notifications import Notify
from textual.screen import Screen

from fleetchat.app.archive import Archive
from fleetchat.app.commands import COMMANDS, NUMBERED
from fleetchat.app.events import RuntimeControl, RuntimeEvent
from fleetchat.app.keeper import Keeper
from fleetchat.app.keymap import KeyMap, footer_key, resolve
from fleetchat.app.messages import NewsWaiting, RuntimeNews
from fleetchat.app.panel.layout import SIDE_FROM
from fleetchat.app.screens.chat import ChatScreen
from fleetchat.app.terminal_keys import read_alt_as_alt, without_letter
from fleetchat.app.terminal_output import with_lasting_file
from fleetchat.app.theme import DEFAULT_THEME, FALLBACK_THEME, LoadedThemes
from fleetchat.chat.sanitise import sanitise
from fleetchat.errors import ExitCode

SHUTDOWN_TIMEOUT = 1.4  # seconds; leaving takes at most 2
SAVE_TIMEOUT = 0.4  # seconds
MOST_TOLD = 2  # notes that stand over the chat at once
SECOND_PRESS = 2.0  # seconds within which a second Ctrl+C leaves


class FleetchatApp(App[None]):
    """The screen of fleetchat. `runtime` is started after the first paint and ended before the exit."""

    TITLE = "fleetchat"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (SIDE_FROM, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (12, "-low"), (30, "-high")]  # noqa: RUF012  (Textual's own type)

    CSS = """
    ToastRack { dock: top; align: right top; margin: 2 0 0 0; }
    .-tiny ToastRack { margin: 0; }
    .-tiny HeaderLine, .-tiny TabBar, .-tiny Footer { display: none; }
    .-low Prompt { max-height: 6; }
    .-tiny Prompt { border: none; min-height: 1; max-height: 2; padding: 0; }
    .-tiny Transcript { padding: 0; }
    .-tiny FailureScreen > VerticalScroll { border: none; padding: 0; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", id="app.quit", priority=True, tooltip="Leave fleetchat"),
        Binding("ctrl+c", "copy_or_quit", "Copy, or twice: quit", id="app.copy", priority=True, show=False),
    ]

    def __init__(
        self,
        runtime: RuntimeControl,
        archive: Archive,
        themes: LoadedThemes,
        theme: str,
        state: Path,
        keys: KeyMap | None = None,
    ) -> None:
        """`state` is the folder for what the program remembers by itself."""
        super().__init__()
        read_alt_as_alt()
        self.runtime = runtime
        self.keeper = Keeper(archive, self._complain)
        self.chat_screen = ChatScreen(runtime, self.keeper, state, keys or resolve({}))
        self.chat_screen.themes = themes
        self._notices = [*themes.problems, *self.chat_screen.keys.problems]
        for loaded in themes.themes:
            self.register_theme(loaded)
        self._choose_theme(theme)
        self._last_interrupt = float("-inf")
        self._leaving = False
        self._news: deque[RuntimeEvent] = deque()
        self._news_are_told = False
        self._background: asyncio.Future[None] | None = None  # keeps what a signal began alive

    def _choose_theme(self, name: str) -> None:
        try:
            self.theme = name
        except InvalidThemeError:
            known = DEFAULT_THEME in self.available_themes
            self.theme = DEFAULT_THEME if known else FALLBACK_THEME
            self._notices.append(f"{self.chat_screen.themes.lacks(name)}; {self.theme} is used, F4 shows all")

    @property
    def fault(self) -> Exception | None:
        """What broke the screen, if something did."""
        return self._exception

    def _fatal_error(self) -> None:
        """Textual would print a traceback; who started us says one line instead, with `fault`."""
        self._close_messages_no_wait()

    def watch_app_focus(self, looked_at: bool) -> None:
        """The terminal is looked at again: what was not drawn meanwhile is."""
        if looked_at and self.chat_screen.is_mounted:
            self.chat_screen.draw_fleet()

    def get_default_screen(self) -> Screen[None]:
        return self.chat_screen

    def get_driver_class(self) -> type[Driver]:
        return with_lasting_file(super().get_driver_class())

    def terminal_is_lost(self) -> None:
        """Called from any thread. Where the system does not tell of it by a signal, leave all the same."""
        with suppress(RuntimeError):
            self.call_later(self.leave, int(ExitCode.INTERRUPTED))

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            without_letter(event)
            if event.key == "escape" and not event.is_forwarded and len(self._notifications):
                self.clear_notifications()
                if not self._is_writing:
                    return  # a reply is stopped by the same key: that must not take two
        await super().on_event(event)

    @property
    def _is_writing(self) -> bool:
        """Whether the chat that is seen, with nothing over it, has a reply under way."""
        chat = self.chat_screen
        return self.screen is chat and chat.pane.state.writing is not None

    def on_notify(self, event: Notify) -> None:
        """What is told once more replaces what was told before; else the oldest makes room, errors last."""
        told = event.notification
        same = [
            one for one in self._notifications if (one.message, one.severity) == (told.message, told.severity)
        ]
        others = [one for one in self._notifications if one not in same]
        others.sort(key=lambda one: one.severity == "error")
        for gone in (*same, *others[: max(0, len(others) + 1 - MOST_TOLD)]):
            self._unnotify(gone, refresh=False)

    def on_mount(self) -> None:
        if self._notices:
            self.notify(sanitise("\n".join(self._notices)), severity="warning", timeout=15, markup=False)
        self._leave_on_signals()
        self.call_after_refresh(self.runtime.start, self._report)

    def _report(self, event: RuntimeEvent) -> None:
        """Called from the runtime's thread."""
        self._news.append(event)
        if not self._news_are_told:  # what comes together wakes the screen once
            self._news_are_told = True
            with suppress(RuntimeError):  # the loop is closed: nobody looks any more
                self.post_message(NewsWaiting())

    def on_news_waiting(self) -> None:
        """Pass them on: mounting a long reply must not keep this queue, through which all keys go."""
        self._news_are_told = False
        news = [self._news.popleft() for _ in range(len(self._news))]
        if news and not self._leaving:
            self.chat_screen.post_message(RuntimeNews(news))

    def _complain(self, text: str) -> None:
        """Called from any thread."""
        with suppress(RuntimeError):
            self.call_later(self.notify, sanitise(text), severity="error", timeout=20, markup=False)

    def _leave_on_signals(self) -> None:
        """Being ended from outside is leaving as by key: the reply is kept, the terminal restored."""
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
                if number is not None:
                    asyncio.get_running_loop().add_signal_handler(number, self._leave_on_signal)

    def _leave_on_signal(self) -> None:
        self._background = asyncio.ensure_future(self.leave(int(ExitCode.INTERRUPTED)))

    async def action_quit(self) -> None:
        await self.leave(int(ExitCode.DONE))

    async def leave(self, return_code: int) -> None:
        """Ends the runtime, then the screen: at most SHUTDOWN_TIMEOUT later, whatever the fleet does."""
        if self._leaving:
            return
        self._leaving = True
        self.chat_screen.say_leaving()
        await asyncio.to_thread(self.runtime.shutdown, SHUTDOWN_TIMEOUT)
        await asyncio.to_thread(self.keeper.close, SAVE_TIMEOUT)
        await asyncio.to_thread(self.chat_screen.end_recording, SAVE_TIMEOUT)
        self.exit(return_code=return_code)

    async def action_copy_or_quit(self) -> None:
        """Copies what is selected; without a selection, the second press leaves."""
        prompt = self.chat_screen.pane.prompt
        selected = prompt.selected_text or self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(sanitise(selected))
            prompt.drop_selection()
            self.screen.clear_selection()
            self.notify("Sent to the terminal's clipboard", markup=False)
        elif time.monotonic() - self._last_interrupt < SECOND_PRESS:
            await self.action_quit()
        else:
            self._last_interrupt = time.monotonic()
            self.notify("Press Ctrl+C again to leave", timeout=SECOND_PRESS, markup=False)

    def get_key_display(self, binding: Binding) -> str:
        return footer_key(super().get_key_display(binding))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for command in COMMANDS:
            if command.id in NUMBERED:
                continue
            yield SystemCommand(
                command.title, command.help, partial(self.chat_screen.action_command, command.id)
            )
