"""Figures are found by cursor keys and by mouse."""

from __future__ import annotations

from fleetchat.app.panel.layout import Watching, full_lines
from fleetchat.app.panel.lines import Line, Span
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.pointing import Spot, explanation, moved, spot_at, spots_of
from tests.fakes.panel import busy_view

LINES: list[Line] = [
    (Span("title"),),
    (Span("a ", figure="heat", subject="x"), Span("bb", figure="queue", subject="x"), Span("cc")),
    (Span("plain"),),
    (Span("ddd", figure="heat", subject="y"), Span("e", figure="heat", subject="x")),
]
HEAT_X, QUEUE_X, HEAT_Y = ("heat", "x"), ("queue", "x"), ("heat", "y")


def test_every_figure_is_found_once_where_it_stands_first() -> None:
    assert spots_of(LINES) == [
        Spot("heat", "x", 1, 0, "a"),
        Spot("queue", "x", 1, 2, "bb"),
        Spot("heat", "y", 3, 0, "ddd"),
    ]


def test_right_and_left_go_round() -> None:
    spots = spots_of(LINES)
    assert moved(spots, None, right=1) == HEAT_X
    assert moved(spots, HEAT_X, right=1) == QUEUE_X
    assert moved(spots, HEAT_Y, right=1) == HEAT_X
    assert moved(spots, HEAT_X, right=-1) == HEAT_Y
    assert moved([], HEAT_X, right=1) is None


def test_down_and_up_go_to_the_nearest_figure_of_another_line() -> None:
    spots = spots_of(LINES)
    assert moved(spots, QUEUE_X, down=1) == HEAT_Y
    assert moved(spots, HEAT_Y, down=-1) == HEAT_X
    assert moved(spots, HEAT_Y, down=1) == HEAT_Y
    assert moved(spots, HEAT_X, down=-1) == HEAT_X


def test_the_mouse_points_at_what_is_below_it() -> None:
    assert spot_at(LINES, 1, 3) == Spot("queue", "x", 1, 2, "bb")
    assert spot_at(LINES, 1, 4) is None
    assert spot_at(LINES, 1, 99) is None
    assert spot_at(LINES, 9, 0) is None
    assert spot_at(LINES, -1, 0) is None


def test_an_explanation_has_value_sentence_and_advice() -> None:
    told = explanation(Spot("heat", "stage 1", 0, 0, "HOT 2.0x"))
    assert (told.title, told.value) == ("Heat · stage 1", "HOT 2.0x")
    assert told.meaning.startswith("How many times slower")
    assert told.when_bad.startswith("HOT, from 1.5 on:")


def test_an_event_is_explained_by_its_whole_text() -> None:
    told = explanation(Spot("event", "12:01:03  lost  everything", 0, 0, "12:01"))
    assert (told.title, told.value) == ("Event", "12:01:03  lost  everything")


def test_all_figures_of_the_panel_can_be_reached() -> None:
    view, model = busy_view(), PanelModel()
    model.take(view)
    spots = spots_of(full_lines(view, model.blocks, Watching(), 138, 40))
    key, seen = None, set()
    for _ in spots:
        key = moved(spots, key, right=1)
        seen.add(key)
    assert len(seen) == len(spots) > 40
