"""Lines, tables and numbers keep to their widths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.cells import cell_len

from fleetchat.app.panel import numbers
from fleetchat.app.panel.lines import (
    Column,
    Span,
    cut,
    flowing,
    heading,
    tab_look,
    tab_sign,
    table,
    text_of,
    width_of,
)

WORDS = some.lists(some.text("abc 東京", max_size=12), min_size=1, max_size=6)


@given(WORDS, some.integers(0, 60))
def test_a_cut_line_is_never_too_wide(words: list[str], width: int) -> None:
    line = tuple(Span(word, "bold", "speed") for word in words)
    shown = cut(line, width)
    assert width_of(shown) <= max(width, 0)
    if width_of(line) <= width:
        assert shown == line
    else:
        assert width_of(shown) == width
        assert all(span.look == "bold" and span.figure == "speed" for span in shown)


@given(WORDS, some.integers(1, 60))
def test_flowing_loses_nothing_that_fits(words: list[str], width: int) -> None:
    parts = [(Span(word),) for word in words]
    lines = flowing(parts, width)
    assert all(width_of(line) <= width for line in lines)
    if all(width_of(part) <= width for part in parts):
        assert "".join("".join(text_of(line).split()) for line in lines) == "".join("".join(words).split())


@pytest.mark.parametrize("width", range(0, 60))
def test_a_heading_fills_its_line(width: int) -> None:
    shown = text_of(heading("Stages", width, note="fast"))
    assert cell_len(shown) <= width
    if width >= 25:
        assert cell_len(shown) == width
        assert shown.startswith("── Stages ─")
        assert shown.endswith("─ fast ──")


def columns() -> list[Column]:
    return [
        Column("Stage", [Span("0"), Span("1")], 5, 9),
        Column("Name", [Span("left"), Span("right one")], 6, 1, numeric=False),
        Column("ms", [Span("3.2"), Span("12.5")], 6, 5),
    ]


def test_a_table_has_a_title_and_a_line_a_row() -> None:
    assert [text_of(line) for line in table(columns(), 40)] == [
        "Stage Name       ms",
        "    0 left      3.2",
        "    1 right…   12.5",
    ]


def test_a_narrow_table_loses_the_least_wanted_column_first() -> None:
    assert [text_of(line) for line in table(columns(), 18)] == [
        "Stage     ms",
        "    0    3.2",
        "    1   12.5",
    ]
    assert [text_of(line) for line in table(columns(), 9)] == ["Stage", "    0", "    1"]


def test_tabs_have_signs_and_looks() -> None:
    assert [tab_sign(place) for place in (1, 9, 10, 35, 99, None)] == ["1", "9", "a", "z", "z", "?"]
    assert [tab_look(place) for place in (1, 8, 9, None)] == ["tab-1", "tab-8", "tab-1", "dim"]


@given(some.floats(0, 1e12))
def test_milliseconds_and_speeds_never_get_wider_than_six(value: float) -> None:
    assert cell_len(numbers.milliseconds(value)) <= 6
    assert cell_len(numbers.speed(value)) <= 6


@given(some.integers(0, 10**15))
def test_counts_and_sizes_never_get_wider(value: int) -> None:
    assert cell_len(numbers.count(value)) <= 6
    assert value > 10**14 or cell_len(numbers.size(value)) <= 9
    assert value > 10**11 or cell_len(numbers.size(value)) <= 7
    assert not numbers.size(value).startswith("0")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (numbers.milliseconds(None), "–"),
        (numbers.milliseconds(0.04), "0.0"),
        (numbers.milliseconds(999.94), "999.9"),
        (numbers.milliseconds(12_345.6), "12,346"),
        (numbers.milliseconds(1e6), ">99 s"),
        (numbers.count(0), "0"),
        (numbers.count(99_999), "99,999"),
        (numbers.count(100_000), "100k"),
        (numbers.count(1_234_567), "1.2M"),
        (numbers.size(0), "–"),
        (numbers.size(999), "999 B"),
        (numbers.size(32_400), "32 kB"),
        (numbers.size(999_499), "999 kB"),
        (numbers.size(999_500), "1.0 MB"),
        (numbers.size(1_440_000), "1.4 MB"),
        (numbers.size(9_960_000), "10 MB"),
        (numbers.size(135_000_000), "135 MB"),
        (numbers.size(1_234_000_000), "1.2 GB"),
        (numbers.share(None), "–"),
        (numbers.share(0.614), "61%"),
        (numbers.seconds(0.05), "50 ms"),
        (numbers.seconds(1.0), "1 s"),
        (numbers.seconds(2.5), "2.5 s"),
        (numbers.bars([None, 0.0, 0.5, 1.0, 7.0], 6), "  ▁▅██"),
        (numbers.history_bars([None, 1.0, 2.0], 3), " ▅█"),
        (numbers.history_bars([0.0, 0.0], 2), "▁▁"),
        (numbers.gauge(0.61, 10), "██████░░░░"),
        (numbers.gauge(None, 4), "░░░░"),
    ],
)
def test_words_of_numbers(shown: str, expected: str) -> None:
    assert shown == expected
