"""Tables of a reply: one widget each, in exactly the width that there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content
from textual.pilot import Pilot

from fleetchat.app.events import ReplyFinished
from fleetchat.app.widgets.flat_table import FlatTable, Table, column_widths
from fleetchat.app.widgets.transcript import Transcript
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer


def table(*rows: tuple[str, ...], aligns: tuple[str, ...] = ("left", "left")) -> Table:
    header, *others = [tuple(Content(cell) for cell in row) for row in rows]
    return Table(header, tuple(others), aligns)


def plain(lines: list[Content]) -> list[str]:
    return [line.plain for line in lines]


def test_columns_are_as_wide_as_what_they_hold_and_aligned() -> None:
    drawn = table(("name", "n"), ("one", "1"), ("eleven", "11"), aligns=("left", "right")).lines(40)
    assert plain(drawn) == [
        "┌────────┬────┐",
        "│ name   │  n │",
        "├────────┼────┤",
        "│ one    │  1 │",
        "│ eleven │ 11 │",
        "└────────┴────┘",
    ]


def test_where_room_is_short_the_widest_column_is_wrapped_and_rows_are_parted() -> None:
    drawn = table(("a", "b"), ("x", "some words that are long"), ("y", "z")).lines(19)
    assert plain(drawn) == [
        "┌───┬─────────────┐",
        "│ a │ b           │",
        "├───┼─────────────┤",
        "│ x │ some words  │",
        "│   │ that are    │",
        "│   │ long        │",
        "├───┼─────────────┤",
        "│ y │ z           │",
        "└───┴─────────────┘",
    ]


def test_without_a_cell_a_column_rows_are_running_text() -> None:
    assert plain(table(("a", "b"), ("c", "d")).lines(6)) == ["a · b", "c · d"]


@given(
    natural=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    room=st.integers(8, 300),
)
def test_columns_never_take_more_room_than_there_is(natural: list[int], room: int) -> None:
    widths = column_widths(natural, room)
    assert all(1 <= width <= wanted for width, wanted in zip(widths, natural, strict=True))
    assert sum(widths) == min(room, sum(natural))


@given(
    cells=st.lists(st.text("ab 漢é", max_size=30), min_size=6, max_size=6),
    width=st.integers(min_value=14, max_value=60),
)
def test_every_line_of_a_framed_table_is_equally_wide(cells: list[str], width: int) -> None:
    drawn = table(tuple(cells[:2]), tuple(cells[2:4]), tuple(cells[4:])).lines(width)
    assert {line.cell_length for line in drawn} == {drawn[0].cell_length}
    assert drawn[0].cell_length <= width


async def shown(pilot: Pilot[None], runtime: FakeRuntime, text: str) -> None:
    await type_text(pilot, "go")
    await pilot.press("enter")
    await wait_until(pilot, lambda: runtime.submitted)
    runtime.say(ReplyFinished(runtime.submitted[-1][0], answer(text)))
    await wait_until(pilot, lambda: "finished" in screen_text(pilot))


@pytest.mark.asyncio
async def test_a_table_of_a_reply_keeps_styles_and_links_and_is_one_widget() -> None:
    runtime = FakeRuntime()
    text = "| what | n |\n|---|--:|\n| **bold** `code` | 1 |\n| [link](https://example.org) | 22 |\n"
    async with running(runtime) as pilot:
        await shown(pilot, runtime, text)
        assert len(chat_screen(pilot).query(FlatTable)) == 1
        assert not list(chat_screen(pilot).query_one(Transcript).query("MarkdownTD"))
        lines = [line.strip() for line in screen_text(pilot).split("\n")]
        assert "│ bold code │  1 │" in lines
        assert "│ link      │ 22 │" in lines
