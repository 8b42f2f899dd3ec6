"""Commands on the program: what is shown, themes, help, the external editor, leaving."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.app.actions.registry import action
from fleetchat.app.editor import edited
from fleetchat.app.help_text import chat_help
from fleetchat.app.panel.numbers import size
from fleetchat.app.recorder import PanelRecorder
from fleetchat.app.screens.choose import ChooseScreen
from fleetchat.app.screens.help import HelpScreen
from fleetchat.app.screens.theme_picker import ThemePicker
from fleetchat.config.program_state import remember_setting
from fleetchat.errors import FleetchatError
from fleetchat.spelling import offered, shortened

if TYPE_CHECKING:
    from fleetchat.app.screens.chat import ChatScreen

RECORDING = "fleet-recording.jsonl"  # the last recording without a name, in the state folder
SAVE_TIMEOUT = 2.0  # seconds


@action("chat.stop")
async def stop(screen: ChatScreen, _argument: str) -> None:
    screen.stop(screen.pane)


@action("view.follow")
async def follow(screen: ChatScreen, _argument: str) -> None:
    screen.pane.transcript.follow()


@action("view.panel")
async def panel(screen: ChatScreen, _argument: str) -> None:
    screen.show_mode(screen.panel_mode.following)


@action("view.record")
async def record(screen: ChatScreen, argument: str) -> None:
    """Begin a recording, or end the one under way; `fleetchat replay` shows it."""
    if screen.recorder is not None:
        ended = await asyncio.to_thread(screen.end_recording, SAVE_TIMEOUT)
        if ended is not None:
            screen.tell(f"Recorded {size(ended.written)}; see it by: fleetchat replay {ended.path}")
    else:
        path = _recording_file(screen, argument)
        try:
            screen.recorder = await asyncio.to_thread(PanelRecorder, path)
            screen.tell(f"Recording the fleet panel to {path}; /record ends it")
        except FleetchatError as error:
            screen.tell(error.message)
    screen.refresh_all()


def _recording_file(screen: ChatScreen, argument: str) -> Path:
    return Path(argument).expanduser() if argument else screen.state_folder / RECORDING


@action("prompt.editor")
async def editor(screen: ChatScreen, _argument: str) -> None:
    prompt = screen.pane.prompt
    try:
        with screen.app.suspend():
            text = await asyncio.to_thread(edited, prompt.text)
    except FleetchatError as error:
        screen.tell(error.message)
        return
    except Exception as error:  # Textual's SuspendNotSupported, where there is no terminal to hand over
        screen.tell(f"An editor cannot be started here: {error}")
        return
    if text != prompt.text:
        prompt.set_text(text)
    screen.refresh(repaint=True, layout=True)


@action("app.theme")
async def theme(screen: ChatScreen, argument: str) -> None:
    if not argument:
        screen.app.push_screen(ThemePicker(partial(remember_theme, screen)))
    elif argument in screen.app.available_themes:
        screen.app.theme = argument
        remember_theme(screen, argument)
    else:
        known = sorted(screen.app.available_themes)
        lacks = screen.themes.lacks(argument)
        screen.tell(f"{lacks[0].upper()}{lacks[1:]}{offered(argument, known, '/theme')}")


@action("model.switch")
async def model(screen: ChatScreen, argument: str) -> None:
    models = await asyncio.to_thread(screen.runtime.models)
    names = [name for name, _ in models]

    def take(place: int | None) -> None:
        if place is not None:
            _switch_model(screen, names[place], models[place][1])

    if not argument:
        lines = [f"{title}  ({name})" for name, title in models]
        screen.app.push_screen(ChooseScreen("Model", lines), take)
    elif argument in names:
        take(names.index(argument))
    else:
        screen.tell(f"{shortened(argument)} is not built{offered(argument, names, '/model')}")


def _switch_model(screen: ChatScreen, name: str, title: str) -> None:
    """Chats keep what was said; the new model reads it anew."""
    if title == screen.model:
        screen.tell(f"{title} is served already")
        return
    screen.expect_fleet(f"Changing to {title}")
    screen.runtime.switch(name)
    _remember(screen, "model", "recipe", name)


@action("app.help")
async def show_help(screen: ChatScreen, _argument: str) -> None:
    screen.app.push_screen(HelpScreen(chat_help(screen.situation(), screen.key_names)))


@action("app.quit")
async def leave(screen: ChatScreen, _argument: str) -> None:
    await screen.run_action("app.quit")


def remember_theme(screen: ChatScreen, name: str) -> None:
    _remember(screen, "ui", "theme", name)


def _remember(screen: ChatScreen, table: str, key: str, value: str) -> None:
    """The next run begins with it, unless the user's file says otherwise."""
    try:
        remember_setting(table, key, value)
    except OSError as error:
        screen.tell(f"This cannot be remembered: {error.strerror}")
