"""The fleet panel on the screen: its three sizes, its keys, its explanations, and what hides it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.events import AppBlur, AppFocus, Key
from textual.pilot import Pilot

from fleetchat.app.actions import ACTIONS
from fleetchat.app.clipboard import copied_by
from fleetchat.app.events import ChatNumber, SnapshotTaken, StartProgressed
from fleetchat.app.keymap import resolve
from fleetchat.app.panel import numbers
from fleetchat.app.panel.layout import PanelMode, Watching
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.playback import Recording
from fleetchat.app.panel.pointing import spots_of
from fleetchat.app.screens.explain_figure import ExplainFigureScreen
from fleetchat.app.screens.fleet import NOT_FROM_HERE, Board, FleetScreen
from fleetchat.app.widgets.fleet_panels import FleetLine, FleetSide
from fleetchat.app.widgets.start_panel import StartPanel
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.fakes.panel import busy_snapshot, hot_view, lost_view, resting_snapshot
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

CHATS = {ChatNumber(1): 1}


def say(runtime: FakeRuntime, end: float = 100.0) -> None:
    runtime.say(SnapshotTaken(busy_snapshot(end), {}, CHATS))


async def to_full(pilot: Pilot[None], runtime: FakeRuntime) -> FleetScreen:
    say(runtime)
    await pilot.press("f9")
    await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot) and "12:01:35" in screen_text(pilot))
    screen = pilot.app.screen
    assert isinstance(screen, FleetScreen)
    return screen


async def test_f9_goes_from_beside_the_chat_to_the_whole_screen_to_hidden() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        say(runtime)
        await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot))
        await wait_until(pilot, lambda: "Type a message, Enter sends" in screen_text(pilot))
        await pilot.press("f9")
        await wait_until(pilot, lambda: "Address" in screen_text(pilot))
        await wait_until(pilot, lambda: "Type a message, Enter sends" not in screen_text(pilot))
        await pilot.press("f9")
        await wait_until(pilot, lambda: "Type a message, Enter sends" in screen_text(pilot))
        await wait_until(pilot, lambda: "Pipeline" not in screen_text(pilot))
        assert chat_screen(pilot).panel_mode is PanelMode.HIDDEN
        await pilot.press("f9")
        await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot))


async def test_escape_goes_back_to_the_chat_and_leaves_the_panel_beside_it() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        await to_full(pilot, runtime)
        await pilot.press("escape")
        await wait_until(pilot, lambda: chat_screen(pilot).panel_mode is PanelMode.SIDE)
        await wait_until(pilot, lambda: "Type a message, Enter sends" in screen_text(pilot))
        await type_text(pilot, "hello")
        await wait_until(pilot, lambda: "hello" in screen_text(pilot))


async def test_between_wide_and_narrow_the_panel_changes_its_place() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        say(runtime)
        await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot))
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: "2 of 2 stages ready" in screen_text(pilot))
        await wait_until(pilot, lambda: "Pipeline" not in screen_text(pilot))
        await pilot.resize_terminal(140, 40)
        await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot))
        await wait_until(pilot, lambda: "of 2 stages ready" not in screen_text(pilot))


async def test_a_loss_takes_two_lines_more_and_gives_them_back() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (80, 24)) as pilot:
        runtime.say(SnapshotTaken(lost_view().snapshot, {}, CHATS))
        await wait_until(pilot, lambda: "1 of 2 stages ready" in screen_text(pilot))
        await wait_until(pilot, lambda: "Stage 1 (127.0.0.1:41001) stopped working." in screen_text(pilot))
        await wait_until(pilot, lambda: "answers go on by themselves." in screen_text(pilot))
        await wait_until(pilot, lambda: "bringing the fleet back" in screen_text(pilot))
        say(runtime)
        await wait_until(pilot, lambda: "2 of 2 stages ready" in screen_text(pilot))
        assert pilot.app.screen.query_one(FleetLine).size.height == 1
        await wait_until(pilot, lambda: "bringing the fleet back" not in screen_text(pilot))


@pytest.mark.parametrize("size", [(140, 40), (80, 24)])
async def test_a_hidden_panel_tells_trouble_and_moves_and_nothing_else(size: tuple[int, int]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, size) as pilot:
        say(runtime)
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view is not None)
        chat_screen(pilot).show_mode(PanelMode.HIDDEN)
        await wait_until(pilot, lambda: "of 2 stages ready" not in screen_text(pilot))
        runtime.say(SnapshotTaken(lost_view().snapshot, {}, CHATS))
        await wait_until(pilot, lambda: "Stage 1 (127.0.0.1:41001) stopped working." in screen_text(pilot))
        assert "of 2 stages ready" not in screen_text(pilot)
        moving = replace(busy_snapshot(102.0), moving="stage 0: loading the shard")
        runtime.say(SnapshotTaken(moving, {}, CHATS))
        await wait_until(pilot, lambda: "Moving: stage 0: loading the shard" in screen_text(pilot))
        await wait_until(pilot, lambda: "stopped working" not in screen_text(pilot))
        say(runtime, 103.0)
        await wait_until(pilot, lambda: "Moving" not in screen_text(pilot))
        assert not chat_screen(pilot).query_one(FleetLine).display
        chat_screen(pilot).show_mode(PanelMode.SIDE)
        await wait_until(
            pilot, lambda: "stages ready" in screen_text(pilot) or "── Pipeline" in screen_text(pilot)
        )


async def test_what_a_recovery_reports_is_gone_when_the_chain_serves_again() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (80, 24)) as pilot:
        runtime.say(SnapshotTaken(lost_view().snapshot, {}, CHATS))
        runtime.say(StartProgressed("stage 1: loading the shard"))
        await wait_until(pilot, lambda: "stage 1: loading the shard …" in screen_text(pilot))
        runtime.say(SnapshotTaken(lost_view().snapshot, {}, CHATS))
        await pilot.pause()
        assert "stage 1: loading the shard …" in screen_text(pilot)
        say(runtime)
        await wait_until(pilot, lambda: "loading the shard" not in screen_text(pilot))


@pytest.mark.parametrize("doing", [{"trouble": "Stage 1 stopped working."}, {"moving": "loading 1 of 2"}])
async def test_what_a_recovery_or_a_move_does_is_said_until_it_is_over(doing: dict[str, str]) -> None:
    runtime = FakeRuntime()
    async with running(runtime, (80, 24)) as pilot:
        runtime.say(SnapshotTaken(replace(busy_snapshot(100.0), **doing), {}, CHATS))
        runtime.say(StartProgressed("stage 1: loading the shard"))
        await wait_until(pilot, lambda: "stage 1: loading the shard" in screen_text(pilot))
        runtime.say(SnapshotTaken(replace(busy_snapshot(100.25), **doing), {}, CHATS))
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot.taken == 100.25)
        assert pilot.app.screen.query_one(StartPanel).display
        say(runtime, 100.5)
        await wait_until(pilot, lambda: "stage 1: loading the shard" not in screen_text(pilot))


async def test_what_is_hidden_or_not_looked_at_is_not_drawn() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        say(runtime)
        side, line = chat_screen(pilot).query_one(FleetSide), chat_screen(pilot).query_one(FleetLine)
        await wait_until(pilot, lambda: side.lines)
        assert line.lines == ()
        pilot.app.post_message(AppBlur())
        await wait_until(pilot, lambda: not pilot.app.app_focus)
        before = side.lines
        runtime.say(SnapshotTaken(hot_view().snapshot, {}, CHATS))
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot == hot_view().snapshot)
        assert side.lines is before
        pilot.app.post_message(AppFocus())
        await wait_until(pilot, lambda: "HOT 2.0x" in screen_text(pilot))
        chat_screen(pilot).show_mode(PanelMode.HIDDEN)
        before = side.lines
        say(runtime, 101.0)
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot.taken == 101.0)
        assert side.lines is before


def at_rest(runtime: FakeRuntime, end: float) -> None:
    runtime.say(SnapshotTaken(resting_snapshot(end), {}, CHATS))


async def test_beside_the_chat_a_fleet_at_rest_is_drawn_once() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        screen, side = chat_screen(pilot), chat_screen(pilot).query_one(FleetSide)
        at_rest(runtime, 110.0)
        await wait_until(pilot, lambda: "idle 100%" in screen_text(pilot) or " 100%" in screen_text(pilot))
        before = side.lines
        at_rest(runtime, 110.25)
        await wait_until(pilot, lambda: screen.fleet.view.snapshot.taken == 110.25)
        assert side.lines is before
        say(runtime, 110.5)
        await wait_until(pilot, lambda: "▒" in screen_text(pilot))
        at_rest(runtime, 120.0)
        await wait_until(pilot, lambda: side.lines == before)
        await pilot.resize_terminal(150, 40)
        await wait_until(pilot, lambda: side.lines != before)


async def test_on_the_whole_screen_a_fleet_at_rest_is_drawn_once_for_what_is_looked_at() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        full = await to_full(pilot, runtime)
        board = full.query_one(Board)
        at_rest(runtime, 103.0)
        await wait_until(pilot, lambda: not any("▒▒" in span.text for line in board.lines for span in line))
        before = board.lines
        at_rest(runtime, 103.25)
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot.taken == 103.25)
        assert board.lines is before
        for _ in range(2):  # until the last work is in sight again: it moves on
            await pilot.press("minus")
        await wait_until(pilot, lambda: "5 s, " in screen_text(pilot))
        before = board.lines
        at_rest(runtime, 103.5)
        await wait_until(pilot, lambda: board.lines is not before)


async def test_what_was_at_rest_is_drawn_when_the_terminal_is_looked_at_again() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        full = await to_full(pilot, runtime)
        board = full.query_one(Board)
        pilot.app.post_message(AppBlur())
        await wait_until(pilot, lambda: not pilot.app.app_focus)
        at_rest(runtime, 103.0)
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot.taken == 103.0)
        assert any("▒" in span.text for line in board.lines for span in line if span.figure == "lane")
        pilot.app.post_message(AppFocus())
        await wait_until(
            pilot,
            lambda: (
                not any("▒" in span.text for line in board.lines for span in line if span.figure == "lane")
            ),
        )


async def test_f1_explains_the_figure_that_is_pointed_at() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 30)) as pilot:
        screen = await to_full(pilot, runtime)
        board = screen.query_one(Board)
        await pilot.press("right")
        assert board.key == spots_of(board.lines)[0].key
        board.point_at(next(spot for spot in spots_of(board.lines) if spot.key == ("heat", "stage 0")))
        await pilot.press("down")
        assert board.key == ("heat", "stage 1")
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, ExplainFigureScreen))
        await wait_until(pilot, lambda: "Heat · stage 1" in screen_text(pilot))
        await wait_until(pilot, lambda: "How many times slower than its own best" in screen_text(pilot))
        await wait_until(pilot, lambda: "HOT, from 1.5 on: the processor throttles" in screen_text(pilot))
        await pilot.press("escape")
        await wait_until(pilot, lambda: pilot.app.screen is screen)


async def test_a_click_explains_as_well_beside_the_chat() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        say(runtime)
        await wait_until(pilot, lambda: "── Pipeline" in screen_text(pilot))
        rows = screen_text(pilot).splitlines()
        row = next(number for number, text in enumerate(rows) if "tokens/s" in text)
        await pilot.click(offset=(rows[row].index("tokens/s"), row))
        await wait_until(pilot, lambda: "Tokens/s · all chats" in screen_text(pilot))


async def test_paused_it_stands_still_and_the_pipeline_can_be_stepped_through() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        screen = await to_full(pilot, runtime)
        await pilot.press("space")
        await wait_until(pilot, lambda: "paused, 0.0 s ago" in screen_text(pilot))
        before = screen_text(pilot)
        runtime.say(SnapshotTaken(replace(busy_snapshot(100.5), tokens_per_s=77.7), {}, CHATS))
        await wait_until(pilot, lambda: chat_screen(pilot).fleet.view.snapshot.taken == 100.5)
        assert screen_text(pilot) == before
        await pilot.press("comma")
        await wait_until(pilot, lambda: screen.watching.end == 99.75)
        await wait_until(pilot, lambda: screen_text(pilot) != before)
        await pilot.press("plus", "plus")
        await wait_until(pilot, lambda: "200 ms, " in screen_text(pilot))
        await pilot.press("full_stop", "minus")
        await wait_until(pilot, lambda: "500 ms, " in screen_text(pilot))
        assert screen.watching.end == pytest.approx(99.8)
        assert "77.7 tokens/s" not in screen_text(pilot)
        await pilot.press("space")
        await wait_until(pilot, lambda: "77.7 tokens/s" in screen_text(pilot))


async def test_events_are_filtered_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_TTY", "there")  # no tool of this machine is asked
    assert copied_by("x", {"SSH_TTY": "there"}) is None
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        await to_full(pilot, runtime)
        await pilot.press("f")
        await wait_until(pilot, lambda: "lost: 1 of 3" in screen_text(pilot))
        await wait_until(pilot, lambda: "210 dead cells" not in screen_text(pilot))
        await pilot.press("c")
        await wait_until(pilot, lambda: "Copied 1 event to the terminal's clipboard" in screen_text(pilot))
        assert pilot.app.clipboard == (
            "12:01:01  lost  stage 1  Stage 1 (127.0.0.1:41001) stopped working. It is being restarted."
        )
        await pilot.press("f", "f", "f", "c")
        await wait_until(pilot, lambda: pilot.app.clipboard.count("\n") == 2)
        assert pilot.app.clipboard.splitlines()[2].startswith("12:01:35  compaction  chat 1"[:22])


async def test_without_a_fleet_the_panel_is_empty() -> None:
    async with running(FakeRuntime(), (100, 30), ready=False) as pilot:
        await pilot.press("f9")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        await pilot.press("f1", "space", "plus", "comma", "f", "c", "pagedown", "down")
        await pilot.press("escape", "escape")  # the first one takes away what was told of the copy
        await wait_until(pilot, lambda: pilot.app.screen is chat_screen(pilot))


async def test_every_key_of_the_chat_means_the_same_on_the_whole_screen() -> None:
    keys = resolve({"tab.new": "ctrl+t", "view.panel": "f9,f10"}).keys
    own = FleetScreen(PanelModel())._bindings.key_to_bindings
    found = FleetScreen(PanelModel(), keys)._bindings.key_to_bindings
    for command, listed in keys.items():
        for key in listed.split(","):
            meant = [one.action for one in found.get(key, [])]
            passed_on = key not in own and command not in NOT_FROM_HERE
            assert meant == (
                [f"command('{command}')"] if passed_on else [one.action for one in own.get(key, [])]
            )
    assert "ctrl+t" in found
    assert "f10" in found
    assert "ctrl+n" not in found


async def test_keys_of_the_chat_lead_from_the_whole_screen_to_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    async def note(_screen: object, _argument: str) -> None:
        done.append("done")

    monkeypatch.setitem(ACTIONS, "tab.next", note)
    monkeypatch.setitem(ACTIONS, "chat.find", note)
    async with running(FakeRuntime(), (140, 40)) as pilot:
        screen = chat_screen(pilot)
        for number, key in enumerate(("ctrl+pagedown", "f3"), start=1):
            screen.show_mode(PanelMode.FULL)
            assert isinstance(pilot.app.screen, FleetScreen)
            await pilot.press(key)
            await wait_until(pilot, lambda number=number: len(done) == number)
            await wait_until(pilot, lambda: screen.is_active and screen.panel_mode is PanelMode.SIDE)


async def test_what_is_typed_after_a_new_chat_was_wanted_goes_into_it() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        whole = await to_full(pilot, runtime)
        pilot.app.post_message(Key("ctrl+n", None))
        await type_text(pilot, "cf")  # both mean something in the panel
        screen = chat_screen(pilot)
        await wait_until(pilot, lambda: len(screen.tabs.numbers) == 2 and screen.is_active)
        assert whole.watching == Watching()
        await type_text(pilot, " hello")
        await wait_until(pilot, lambda: "hello" in screen_text(pilot))


async def test_a_command_of_the_palette_is_carried_out_from_the_whole_screen() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (140, 40)) as pilot:
        await to_full(pilot, runtime)
        screen = chat_screen(pilot)
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
        found = {one.title: one.callback for one in pilot.app.get_system_commands(pilot.app.screen)}
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        found["New chat"]()  # as the palette does when it is closed
        await wait_until(pilot, lambda: len(screen.tabs.numbers) == 2 and screen.is_active)
        await to_full(pilot, runtime)
        found["Fleet panel"]()
        await wait_until(pilot, lambda: screen.is_active and screen.panel_mode is PanelMode.HIDDEN)


async def test_a_key_that_comes_before_the_whole_screen_is_there_leads_back_to_the_chat() -> None:
    async with running(FakeRuntime(), (140, 40)) as pilot:
        screen = chat_screen(pilot)
        screen.action_command("view.panel")
        screen.action_command("tab.new")
        await wait_until(pilot, lambda: len(screen.tabs.numbers) == 2)
        await wait_until(pilot, lambda: screen.is_active and screen.panel_mode is PanelMode.SIDE)


async def test_a_low_screen_is_scrolled() -> None:
    runtime = FakeRuntime()
    async with running(runtime, (100, 14)) as pilot:
        say(runtime)
        await pilot.press("f9")
        await wait_until(pilot, lambda: "── Stages" in screen_text(pilot))
        await wait_until(pilot, lambda: "── Events" not in screen_text(pilot))
        await pilot.press("pagedown", "pagedown")
        await wait_until(pilot, lambda: "── Events" in screen_text(pilot))
        await pilot.press("pageup", "pageup")
        await wait_until(pilot, lambda: "── Stages" in screen_text(pilot))


async def test_the_panel_is_recorded_by_command(tmp_path: Path) -> None:
    runtime, path = FakeRuntime(), tmp_path / "run.jsonl"
    async with running(runtime, (140, 40)) as pilot:
        chat_screen(pilot).pane.prompt.set_text(f"/record {path}")
        await pilot.press("enter")
        await wait_until(pilot, lambda: " · recording" in screen_text(pilot))
        for number in range(3):
            say(runtime, 100.0 + number)
            await wait_until(
                pilot, lambda end=100.0 + number: chat_screen(pilot).fleet.view.snapshot.taken == end
            )
        chat_screen(pilot).pane.prompt.set_text("/record")
        await pilot.press("enter")
        await wait_until(pilot, lambda: chat_screen(pilot).recorder is None)
        await wait_until(pilot, lambda: "fleetchat replay" in screen_text(pilot))
        assert f"Recorded {numbers.size(path.stat().st_size)}; see" in screen_text(pilot)
        assert "Recorded 0" not in screen_text(pilot)
    assert len(Recording(path)) == 3


async def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    async with running(FakeRuntime(), (140, 40)) as pilot:
        chat_screen(pilot).pane.prompt.set_text(f"/record {tmp_path}/none/file")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "cannot be written" in screen_text(pilot))
        assert chat_screen(pilot).recorder is None
