"""`fleetchat replay`: the screens of the live run, without a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from fleetchat.app.panel.playback import Playback, Recording
from fleetchat.app.replay import ReplayApp
from fleetchat.app.screens.fleet import Board
from fleetchat.app.theme import LoadedThemes
from fleetchat.cli.replay import run
from fleetchat.errors import InputError
from tests.app.panel.test_recording import record, run_views
from tests.app.pilot import screen_text, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.asyncio
async def test_a_recording_is_played_stopped_sped_up_and_searched(tmp_path: Path) -> None:
    shown = record(tmp_path / "run.jsonl", run_views())
    playback = Playback(Recording(tmp_path / "run.jsonl"))
    playback.paused = True
    app = ReplayApp(playback, "run.jsonl", LoadedThemes((), ()), "no such theme")
    async with app.run_test(size=(140, 42)) as pilot:
        board = app.screen.query_one(Board)
        await wait_until(pilot, lambda: "‖ 1x  00:00 of 00:14" in screen_text(pilot))
        await wait_until(pilot, lambda: list(board.lines) == shown[0])
        await pilot.press("right", "right")
        await wait_until(pilot, lambda: "00:10 of 00:14" in screen_text(pilot))
        await wait_until(pilot, lambda: list(board.lines) == shown[40])
        await pilot.press("comma")
        await wait_until(pilot, lambda: list(board.lines) == shown[39])
        await pilot.press("left")
        await wait_until(pilot, lambda: playback.position == 4.75)
        await pilot.press("home", "right_square_bracket", "right_square_bracket")
        await wait_until(pilot, lambda: "‖ 4x  00:00 of" in screen_text(pilot))
        await pilot.press("space")
        await wait_until(pilot, lambda: playback.position > 2.0)
        await pilot.press("end")
        await wait_until(pilot, lambda: "■ 4x  00:14 of 00:14" in screen_text(pilot))
        assert list(board.lines) == shown[59]
        await pilot.press("plus")
        await wait_until(pilot, lambda: "500 ms, " in screen_text(pilot))
        await pilot.press("right", "f1")
        await pilot.press("q")
    assert app.return_code == 0


def options(file: Path, speed: float = 1.0) -> argparse.Namespace:
    return argparse.Namespace(file=file, speed=speed, paused=False, theme=None)


def test_wrong_use_is_told_before_a_screen_opens(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        run(options(tmp_path / "none"))
    with pytest.raises(InputError, match="--speed 3 cannot be had"):
        run(options(tmp_path / "none", 3.0))
    record(tmp_path / "run.jsonl", run_views(3))
    with pytest.raises(InputError, match="shown in a terminal"):
        run(options(tmp_path / "run.jsonl"))
