"""`fleetchat replay`: a recording of the fleet panel, on any machine, without a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fleetchat.errors import ExitCode, InputError


def register(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "replay",
        help="show a recording of the fleet panel",
        description="Show a recording that `fleetchat --record FILE` or /record made: pause, speed, seek. It "
        "needs no fleet and no model, and may come from another machine.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording")
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="how many times as fast as it was, from 0.25 to 16 (default 1)",
    )
    parser.add_argument("--paused", action="store_true", help="stand still at the beginning")
    parser.add_argument("--theme", metavar="NAME", help="the colours")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play until the user leaves. Raises FleetchatError before the screen opens."""
    from fleetchat.app.panel.playback import SPEEDS, Playback, Recording
    from fleetchat.cli.chat import has_terminal, themes

    if options.speed not in SPEEDS:
        known = ", ".join(f"{speed:g}" for speed in SPEEDS)
        raise InputError(f"--speed {options.speed:g} cannot be had, these can: {known}")
    playback = Playback(Recording(options.file))
    playback.speed, playback.paused = options.speed, options.paused
    if not has_terminal():
        raise InputError("a recording is shown in a terminal, and stdin or stdout is none")

    from fleetchat.app.replay import ReplayApp
    from fleetchat.config import load

    theme = load(None, {"ui.theme": options.theme}).ui.theme
    app = ReplayApp(playback, options.file.name, themes(), theme)
    app.run()
    if app.fault is not None:
        raise app.fault
    return int(ExitCode.DONE)
