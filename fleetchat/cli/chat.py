"""`fleetchat` without a command: the chat in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.cli.fleet_options import (
    FLEET_SETTINGS,
    add_model_options,
    add_speculation_options,
    configured_recipe,
)
from fleetchat.errors import ExitCode, InputError

if TYPE_CHECKING:
    from fleetchat.app.events import Report
    from fleetchat.app.recorder import PanelRecorder
    from fleetchat.app.runtime import ChatRuntime
    from fleetchat.app.theme import LoadedThemes
    from fleetchat.cli.fleet_changes import FileChanges
    from fleetchat.config import Config
    from fleetchat.cutter.recipe import Recipe

# options of the chat that set a key of the configuration
SETTINGS = {
    **FLEET_SETTINGS,
    "system": "chat.system",
    "theme": "ui.theme",
}
PLAIN_SHUTDOWN = 1.5  # seconds
LOG_LIMIT = 1 << 20  # bytes; one older log is kept


def register_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the chat to the top of the command line."""
    group = parser.add_argument_group("options of the chat")
    add_model_options(group)
    group.add_argument("--system", metavar="TEXT", help="the system prompt")
    group.add_argument("--theme", metavar="NAME", help="the colours")
    group.add_argument(
        "--record", type=Path, metavar="FILE", help="record the fleet panel, for `fleetchat replay`"
    )
    group.add_argument(
        "--record-limit", type=float, metavar="MB", default=64.0, help="where a recording ends (default 64)"
    )
    group.add_argument(
        "--plain", action="store_true", help="lines of text only, for screen readers and dumb terminals"
    )
    add_speculation_options(parser)


def run(options: argparse.Namespace) -> int:
    """Chat until the user leaves. Raises FleetchatError before the screen opens, or what broke the screen."""
    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load

    if not options.plain and not has_terminal():
        raise InputError(
            "the chat needs a terminal, and stdin or stdout is none",
            hint='in pipes and programs use `fleetchat ask "…"`, or `fleetchat --plain` line by line',
        )
    if not options.plain and os.environ.get("TERM") == "dumb":
        raise InputError(
            "no screen can be drawn on this terminal: TERM=dumb",
            hint="`fleetchat --plain` writes lines of text only; or export TERM=xterm-256color",
        )
    overrides = {key: getattr(options, name) for name, key in SETTINGS.items()}
    config = load(options.fleet, overrides, confirm=terminal_confirmation())
    recipe = configured_recipe(config)
    log_to_file()

    if options.plain:
        return run_plain(config, recipe, options.fleet, overrides)

    from fleetchat.app.app import SAVE_TIMEOUT, SHUTDOWN_TIMEOUT, FleetchatApp
    from fleetchat.app.archive import Archive
    from fleetchat.app.bridge import RuntimeThread
    from fleetchat.app.keymap import resolve
    from fleetchat.app.panel.layout import PanelMode
    from fleetchat.chat.history import FILE_NAME
    from fleetchat.paths import state_folder

    def make_runtime(report: Report) -> ChatRuntime:
        from fleetchat.cli.chat_backend import chat_runtime  # on the runtime's thread, after the first paint
        from fleetchat.cli.collector import sparing_collector
        from fleetchat.cli.fleet_changes import config_source

        source = config_source(options.fleet, overrides, config)
        return chat_runtime(config, recipe, sparing_collector(report), source)

    def models() -> list[tuple[str, str]]:
        from fleetchat.cli.chat_backend import built_models

        return built_models()

    changes = ChangesOnDemand(options.fleet, overrides, config)
    runtime = RuntimeThread(make_runtime, models, changes)
    archive = Archive(state_folder() / FILE_NAME)
    app = FleetchatApp(runtime, archive, themes(), config.ui.theme, state_folder(), resolve(config.ui.keys))
    if not config.ui.panel:
        app.chat_screen.panel_mode = PanelMode.HIDDEN
    if options.record is not None:
        app.chat_screen.recorder = recorder(options.record, options.record_limit)
    try:
        app.run()
    finally:
        runtime.shutdown(SHUTDOWN_TIMEOUT)
        app.chat_screen.end_recording(SAVE_TIMEOUT)
        archive.close(SAVE_TIMEOUT)
    if app.fault is not None:
        raise app.fault
    return app.return_code or int(ExitCode.DONE)


@dataclass(frozen=True, slots=True)
class ChangesOnDemand:
    """`fleet_changes.FileChanges`, imported with trio and all when the first change is asked for."""

    fleet_file: Path | None
    overrides: Mapping[str, object]
    config: Config

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str:
        return self._changes().write_cut(cut)

    def add_peer(self, address: str, name: str) -> str:
        return self._changes().add_peer(address, name)

    def remove_peer(self, which: str) -> str:
        return self._changes().remove_peer(which)

    def _changes(self) -> FileChanges:
        from fleetchat.cli.fleet_changes import FileChanges, config_source

        return FileChanges(config_source(self.fleet_file, self.overrides, self.config))


def recorder(path: Path, megabytes: float) -> PanelRecorder:
    """What writes the recording that was asked for. Raises InputError."""
    from fleetchat.app.recorder import PanelRecorder

    if not 0.001 <= megabytes <= 1e6:
        raise InputError(f"--record-limit takes megabytes from 0.001 to 1000000, not {megabytes:g}")
    return PanelRecorder(path, max_bytes=round(megabytes * 2**20))


def run_plain(
    config: Config, recipe: Recipe, fleet_file: Path | None, overrides: Mapping[str, object]
) -> int:
    """The chat without a screen. Raises FleetchatError."""
    from fleetchat.app.bridge import RuntimeThread
    from fleetchat.chat.history import FILE_NAME, open_history
    from fleetchat.cli.plain import PlainChat
    from fleetchat.paths import state_folder

    def make_runtime(report: Report) -> ChatRuntime:
        from fleetchat.cli.chat_backend import chat_runtime
        from fleetchat.cli.fleet_changes import config_source

        return chat_runtime(config, recipe, report, config_source(fleet_file, overrides, config))

    runtime = RuntimeThread(make_runtime)
    history = open_history(state_folder() / FILE_NAME)
    try:
        history.mark_interrupted()
        PlainChat(runtime, history, input).run()
    finally:
        runtime.shutdown(PLAIN_SHUTDOWN)
        history.close()
    return int(ExitCode.DONE)


def has_terminal() -> bool:
    """Whether keys can be read and a screen can be drawn."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def themes() -> LoadedThemes:
    """The shipped themes and the user's own, which win."""
    from fleetchat.app.theme import load_themes
    from fleetchat.paths import config_folder, shipped

    return load_themes([shipped("themes"), config_folder() / "themes"])


def log_to_file() -> None:
    """What goes wrong is written to `chat.log`: on stderr it would run across the screen."""
    import logging
    from logging.handlers import RotatingFileHandler

    from fleetchat.paths import log_folder

    logger = logging.getLogger("fleetchat")
    logger.propagate = False
    try:
        log_folder().mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = RotatingFileHandler(
            log_folder() / "chat.log", maxBytes=LOG_LIMIT, backupCount=1, encoding="utf-8", delay=True
        )
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
