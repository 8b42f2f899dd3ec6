"""`fleetchat replay`: the screens of the live run, without a fleet."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from fleetchat.app.panel.playback import Playback, Recording
from fleetchat.app.replay import ReplayApp
from fleetchat.app.screens.fleet import Board, FleetScreen
from fleetchat.app.theme import LoadedThemes
from fleetchat.cli.replay import run
from fleetchat.errors import InputError
from tests.app.panel.test_recording import record, run_views
from tests.app.pilot import running, screen_text, wait_until
from tests.fakes.runtime import FakeRuntime

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


Footer = dict[str, tuple[str, str]]


def footer_of(app: App[None]) -> Footer:
    """Key and word by action, as the footer has them."""
    shown = [one.binding for one in app.screen.active_bindings.values() if one.binding.show]
    return {one.action: (app.get_key_display(one), one.description) for one in shown}


@asynccontextmanager
async def replayed(folder: Path) -> AsyncIterator[Pilot[None]]:
    """A recording that stands still at its beginning."""
    record(folder / "run.jsonl", run_views())
    playback = Playback(Recording(folder / "run.jsonl"))
    playback.paused = True
    app = ReplayApp(playback, "run.jsonl", LoadedThemes((), ()), "textual-dark")
    async with app.run_test(size=(140, 42), notifications=True) as pilot:
        await wait_until(pilot, lambda: app.screen.query_one(Board).lines)
        yield pilot


@pytest.mark.asyncio
async def test_what_the_panel_can_do_too_has_the_same_keys_and_words(tmp_path: Path) -> None:
    async with running(FakeRuntime(), (140, 42)) as pilot:
        await pilot.press("f9")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        panel = footer_of(pilot.app)
    async with replayed(tmp_path) as pilot:
        replay = footer_of(pilot.app)
        await wait_until(pilot, lambda: "Space Pause" in screen_text(pilot))
    both = panel.keys() & replay.keys()
    assert len(both) >= 6
    assert {action: replay[action] for action in both} == {action: panel[action] for action in both}
    for key, word in (*panel.values(), *replay.values()):
        assert key[:1] == key[:1].upper(), (key, word)
        assert word[:1] == word[:1].upper(), (key, word)


@pytest.mark.asyncio
async def test_f1_names_the_keys_that_choose_a_figure_here(tmp_path: Path) -> None:
    async with replayed(tmp_path) as pilot:
        board = pilot.app.screen.query_one(Board)
        await pilot.press("f1")
        await wait_until(pilot, lambda: "↑ ↓ and Tab choose a figure, F1 explains it" in screen_text(pilot))
        assert "Arrow keys" not in screen_text(pilot)
        chosen = [board.key]
        for key in ("down", "tab", "up"):
            await pilot.press(key)
            chosen.append(board.key)
        assert None not in chosen
        assert all(one != other for one, other in pairwise(chosen))
        await pilot.press("right")
        await wait_until(pilot, lambda: "00:05 of 00:14" in screen_text(pilot))
        assert board.key == chosen[-1]


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
