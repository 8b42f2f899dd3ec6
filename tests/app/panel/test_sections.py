"""What the sections of the panel say, and that they fit every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetchat.app.panel.event_lines import event_lines, event_text, filtered, next_filter
from fleetchat.app.panel.figures import FIGURES
from fleetchat.app.panel.layout import (
    ZOOMS,
    PanelMode,
    Watching,
    full_lines,
    one_line_panel,
    pause_words,
    side_lines,
    side_width,
)
from fleetchat.app.panel.lines import Line, text_of, width_of
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.speculation import speculation_lines
from fleetchat.app.panel.stages import heat_words, stage_lines, totals, trouble_lines
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.telemetry import StageState
from tests.fakes.panel import busy_view, hot_view, lost_view, prefill_view
from tests.fakes.runtime import snapshot, stage

EMPTY = PanelView(snapshot())


def foreign_view() -> PanelView:
    """A peer and a model whose names want to be more than names."""
    evil = replace(stage(1), address="evil\n\x1b]0;x\x07[bold]東京" * 3, engine="[/]", detail="[red]x" * 40)
    shown = snapshot(stage(0), replace(evil, state=StageState.LOST))
    return PanelView(replace(shown, model="[b]\n\x1b[2Jmodel", trouble=""), {})


VIEWS: list[Callable[[], PanelView]] = [
    lambda: EMPTY,
    busy_view,
    hot_view,
    lost_view,
    prefill_view,
    foreign_view,
]


def model_of(view: PanelView) -> PanelModel:
    model = PanelModel()
    model.take(view)
    return model


def texts(lines: list[Line]) -> list[str]:
    return [text_of(line).rstrip() for line in lines]


@pytest.mark.parametrize("width", [1, 9, 20, 40, 46, 64, 78, 110, 138, 300])
@pytest.mark.parametrize("view", VIEWS)
def test_every_size_is_kept(view: Callable[[], PanelView], width: int) -> None:
    shown = view()
    blocks = model_of(shown).blocks
    for lines in (
        full_lines(shown, blocks, Watching(), width, 40),
        side_lines(shown, blocks, width, 20),
        one_line_panel(shown, blocks, width),
    ):
        assert max(map(width_of, lines)) <= width
        assert not any(set(text_of(line)) & set("\n\r\x1b\x07") for line in lines)
    assert len(side_lines(shown, blocks, width, 20)) <= 20
    assert len(one_line_panel(shown, blocks, width)) <= 3


@pytest.mark.parametrize("view", VIEWS)
def test_every_figure_that_is_shown_can_be_explained(view: Callable[[], PanelView]) -> None:
    shown = view()
    lines = full_lines(shown, model_of(shown).blocks, Watching(), 140, 60)
    assert {span.figure for line in lines for span in line} - {""} <= FIGURES.keys()


def test_every_explanation_is_of_use() -> None:
    shown = busy_view()
    lines = full_lines(shown, model_of(shown).blocks, Watching(), 140, 60)
    assert {span.figure for line in lines for span in line} - {""} == FIGURES.keys()
    for figure in FIGURES.values():
        assert figure.title
        assert figure.meaning.endswith(".")
        assert figure.when_bad.endswith(".")


def test_the_stages_at_138_columns() -> None:
    assert texts(stage_lines(busy_view(), 138))[1:] == [
        "Stage Address         Layers Engine     State      Memory   Live   Dead   Free Heat",
        "    0 127.0.0.1:41000    0–9 masked CPU busy       135 MB  1,234     58 19,188 1.0x",
        "    1 127.0.0.1:41001  10–19 masked CPU busy       135 MB  1,234     58 19,188 1.0x",
        "   ms Compute    p95        1 min   Queue    p95        1 min Network    p95        1 min",
        "    0     3.2    6.5 ▂▄▅ ▇▄▄▄▅█▂▂     0.1    0.2 ▂▄▅ ▇▄▄▄▅█▂▂       –      – ▂▄▅ ▇▄▄▄▅█▂▂",
        "    1     3.2    6.5 ▂▄▅ ▇▄▄▄▅█▂▂     0.1    0.2 ▂▄▅ ▇▄▄▄▅█▂▂     0.2    0.5 ▂▄▅ ▇▄▄▄▅█▂▂",
        " back                                                             0.3    0.6 ▂▄▅ ▇▄▄▄▅█▂▂",
        "  21.4 tokens/s   chat 1  11.2/s   chat 2  12.2/s   waiting 0   recoveries 1   moves 0   evictions "
        "0   shared starts 0",
    ]


def test_what_is_zero_takes_no_line_of_its_own() -> None:
    speeds = "  21.4 tokens/s   chat 1  11.2/s   chat 2  12.2/s"
    zeros = ("waiting 0", "moves 0", "evictions 0", "shared starts 0")
    for width in range(64, 140):
        lines = texts(totals(busy_view(), width))
        assert len(lines) == 1
        assert "recoveries 1" in lines[0]
        assert lines[0].startswith(speeds)
        assert sum(zero in lines[0] for zero in zeros) == (4 if width >= 118 else 0)
    assert [len(texts(totals(busy_view(), width))) for width in (48, 63)] == [2, 2]


def test_speculation_at_78_columns() -> None:
    assert texts(speculation_lines(busy_view(), 78)) == [
        "── Speculation " + "─" * 63,
        "ngram  ███████░░░  69% right   depth  4  4 of at most 8 promise most tokens/s",
        "Chat    Right       recent Depth Rounds Tokens Rolled Masked   Dead Compact",
        "all       69%        ▁▃▅▆█     4    110    603     41     58     29       1",
        "chat 1    69%        ▁▃▅▆█     4    110    301     41     58      0       1",
        "chat 2    69%        ▁▃▅▆█     4    110    302     41     58     29       1",
        "right a round  0▅ 22%  1▂  6%  2▃ 11%  3▄ 17%  4█ 44%",
    ]


def test_throttling_is_told_in_words() -> None:
    assert [heat_words(one) for one in hot_view().snapshot.stages] == ["1.0x", "HOT 2.0x"]
    assert heat_words(stage(0)) == "–"
    assert "stage 1 HOT 2.0x" in text_of(one_line_panel(hot_view(), model_of(hot_view()).blocks, 78)[-1])


def test_a_lost_stage_is_told_with_what_happens_now() -> None:
    assert texts(trouble_lines(lost_view().snapshot, 76)) == [
        "Stage 1 (127.0.0.1:41001) stopped working. It is being restarted; your",
        "answers go on by themselves.",
    ]


def test_a_stage_that_is_silent_for_a_moment_is_told_as_well() -> None:
    silent = stage(1, state=StageState.STALLED, detail="nothing was heard of it for 3 s")
    assert texts(trouble_lines(snapshot(stage(0), silent), 76)) == [
        "Stage 1 at 127.0.0.1:41001 is stalled: nothing was heard of it for 3 s"
    ]


def test_without_room_one_line_says_how_the_fleet_is() -> None:
    blocks = model_of(EMPTY).blocks
    assert texts(one_line_panel(EMPTY, blocks, 76)) == [
        "2 of 2 stages ready    21.4 tokens/s  back   0.3 ms  F9 shows more"
    ]
    lost = PanelView(snapshot(stage(0), stage(1, state=StageState.LOST, detail="connection reset")))
    assert texts(one_line_panel(lost, blocks, 76)) == [
        "Stage 1 at 127.0.0.1:41001 is lost: connection reset",
        "1 of 2 stages ready    21.4 tokens/s  back   0.3 ms  F9 shows more",
    ]


def test_numbers_do_not_change_the_width() -> None:
    """Small and large figures at the same places: nothing jitters."""

    def shown(compute: float, speed: float, cells: int) -> list[int]:
        stages = [
            replace(stage(index, compute=compute), cells_live=cells, memory_resident=cells * 10_000)
            for index in range(2)
        ]
        view = PanelView(snapshot(*stages, tokens_per_s=speed))
        lines = full_lines(view, model_of(view).blocks, Watching(), 138, 40)
        return [width_of(line) for line in lines[:8]]

    assert shown(0.1, 0.0, 1) == shown(999.9, 999.9, 99_999) == shown(12_345.0, 54_321.0, 10_000_000)


def test_events_stand_newest_first_and_can_be_filtered() -> None:
    view = busy_view()
    assert texts(event_lines(view, None, 100, 9)) == [
        "── Events " + "─" * 85 + " 3 ──",
        "12:01:35 compaction  chat 2   210 dead cells were removed, 512 live ones stay",
        "12:01:03 recovered   stage 1  The chain serves again 2.3 s later, as epoch 2.",
        "12:01:01 lost        stage 1  Stage 1 (127.0.0.1:41001) stopped working. It is being restarted.",
    ]
    assert texts(event_lines(view, EventKind.RECOVERED, 60, 9))[1:] == [
        "12:01:03 recovered   The chain serves again 2.3 s later, as…"
    ]
    assert len(event_lines(view, None, 100, 2)) == 3
    assert texts(event_lines(EMPTY, None, 40, 9))[1] == "nothing has happened"


def test_the_filter_goes_through_the_kinds_that_there_are() -> None:
    events = busy_view().snapshot.events
    kinds, kind = [], None
    for _ in range(5):
        kind = next_filter(kind, events)
        kinds.append(kind)
    assert kinds == [EventKind.LOST, EventKind.RECOVERED, EventKind.COMPACTION, None, EventKind.LOST]
    assert next_filter(None, ()) is None
    assert next_filter(EventKind.LOST, ()) is None
    assert [event.number for event in filtered(events, None)] == [3, 2, 1]


def test_an_event_is_copied_as_a_line() -> None:
    view = busy_view()
    assert event_text(view, view.snapshot.events[2]) == (
        "12:01:35  compaction  chat 2  210 dead cells were removed, 512 live ones stay"
    )
    assert view.whose(replace(view.snapshot.events[2], session=9)) == "a chat"
    assert view.whose(replace(view.snapshot.events[2], session=None)) == ""


def test_a_chat_whose_tab_is_closed_is_not_listed() -> None:
    view = PanelView(busy_view().snapshot, {2: 1})
    rows = texts(speculation_lines(view, 100))
    assert [row.split()[:2] for row in rows[3:5]] == [["all", "69%"], ["chat", "1"]]


def test_f9_goes_through_the_modes() -> None:
    mode = PanelMode.SIDE
    seen = [mode := mode.following for _ in range(3)]
    assert seen == [PanelMode.FULL, PanelMode.HIDDEN, PanelMode.SIDE]


def test_there_is_room_beside_the_chat_from_116_columns() -> None:
    assert [side_width(screen) for screen in (80, 115, 116, 140, 200)] == [0, 0, 46, 56, 64]


def test_zoom_stays_within_its_steps() -> None:
    watching = Watching()
    assert watching.zoomed(1).seconds == 0.5
    assert watching.zoomed(99).seconds == ZOOMS[0]
    assert watching.zoomed(-99).seconds == ZOOMS[-1]


def test_a_step_pauses_and_never_looks_ahead() -> None:
    watching = Watching().stepped(-2, 100.0)
    assert (watching.end, watching.paused) == (99.5, True)
    assert watching.stepped(1, 100.0).end == 99.75
    assert watching.stepped(9, 100.0).end == 100.0
    assert watching.toggled(100.0) == Watching()
    assert Watching().toggled(100.0).end == 100.0
    assert pause_words(watching, 101.0) == "paused, 1.5 s ago"
    assert pause_words(Watching(), 101.0) == ""


def test_paused_the_pipeline_is_that_of_the_moment() -> None:
    view = busy_view()
    blocks = model_of(view).blocks
    lines = texts(full_lines(view, blocks, Watching(seconds=0.1, end=99.56), 110, 40))
    (title,) = (line for line in lines if "Pipeline" in line)
    assert "paused, 0.4 s ago · 100 ms" in title
    (drafting,) = (line for line in lines if line.startswith("drafting"))
    assert "2░░░░" in drafting
