"""The application that plays a recording: no fleet, no model."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, InvalidThemeError
from textual.binding import Binding, BindingType
from textual.screen import Screen

from fleetchat.app.keymap import footer_key
from fleetchat.app.panel.playback import Playback
from fleetchat.app.screens.replay import ReplayScreen
from fleetchat.app.theme import FALLBACK_THEME, LoadedThemes


class ReplayApp(App[None]):
    """Shows one recording until the user leaves."""

    TITLE = "fleetchat replay"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q,ctrl+c", "quit", "Quit", id="app.quit", priority=True, show=False),
    ]

    def __init__(self, playback: Playback, name: str, themes: LoadedThemes, theme: str) -> None:
        super().__init__()
        self.replay_screen = ReplayScreen(playback, name)
        for loaded in themes.themes:
            self.register_theme(loaded)
        try:
            self.theme = theme
        except InvalidThemeError:
            self.theme = FALLBACK_THEME

    @property
    def fault(self) -> Exception | None:
        """What broke the screen, if something did."""
        return self._exception

    def _fatal_error(self) -> None:
        """Textual would print a traceback; who started us says one line instead, with `fault`."""
        self._close_messages_no_wait()

    def get_key_display(self, binding: Binding) -> str:
        return footer_key(super().get_key_display(binding))

    def get_default_screen(self) -> Screen[object]:
        return self.replay_screen  # type: ignore[return-value]

    def watch_app_focus(self, looked_at: bool) -> None:
        if looked_at and self.replay_screen.is_mounted:
            self.replay_screen.draw()
