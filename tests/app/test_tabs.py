from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.app.events import ChatNumber
from fleetchat.app.tab_strip import Mark, TabLabel, strip
from fleetchat.app.tabs import TabList


def tabs(*numbers: int, active: int) -> TabList:
    return TabList([ChatNumber(number) for number in numbers], ChatNumber(active))


def test_a_new_tab_stands_right_of_the_active_one() -> None:
    listed = tabs(1, 2, active=1)
    listed.open(ChatNumber(3))
    assert listed == tabs(1, 3, 2, active=3)


def test_closing_shows_the_tab_that_takes_the_place() -> None:
    listed = tabs(1, 2, 3, active=2)
    assert listed.close(ChatNumber(2)) == 3
    assert listed.close(ChatNumber(3)) == 1
    assert listed.close(ChatNumber(1)) is None
    assert listed.numbers == [1]


def test_closing_another_tab_keeps_the_active_one() -> None:
    listed = tabs(1, 2, 3, active=2)
    assert listed.close(ChatNumber(1)) == 2


def test_tabs_are_reopened_the_last_one_first() -> None:
    listed = tabs(1, 2, 3, active=2)
    listed.close(ChatNumber(2))
    listed.close(ChatNumber(1))
    assert [listed.reopen(), listed.reopen(), listed.reopen()] == [1, 2, None]
    assert listed.active == 2


def test_steps_go_around_the_ends_and_moves_do_not() -> None:
    listed = tabs(1, 2, 3, active=3)
    assert listed.step(1) == 1
    assert listed.step(-1) == 3
    listed.move(1)
    assert listed.numbers == [1, 2, 3]
    listed.move(-2)
    assert listed == tabs(3, 1, 2, active=3)
    assert listed.by_place(2) == 1
    assert listed.by_place(4) is None
    assert listed.by_place(0) is None


def labels(*titles: str, mark: Mark = Mark.NONE, speed: float = 0.0) -> list[TabLabel]:
    return [TabLabel(ChatNumber(number), title, mark, speed) for number, title in enumerate(titles, start=1)]


def test_a_label_has_place_mark_title_and_speed() -> None:
    [piece], left, right = strip(labels("Lighthouse", mark=Mark.WRITING, speed=21.44), ChatNumber(1), 60)
    assert (piece.text, piece.start, piece.width) == (" 1 ~ Lighthouse 21.4/s ", 0, 23)
    assert not left
    assert not right
    [piece], _, _ = strip(labels("Lighthouse", mark=Mark.UNREAD), ChatNumber(1), 60)
    assert piece.text == " 1 ● Lighthouse "


def test_titles_are_cut_before_tabs_are_left_out() -> None:
    pieces, _, _ = strip(labels("A long title of a chat", "Another long title"), ChatNumber(1), 32)
    assert [piece.text for piece in pieces] == [" 1 A long titl… ", " 2 Another lon… "]


@settings(max_examples=60)
@given(
    titles=st.lists(st.text(max_size=30), min_size=1, max_size=30),
    active=st.integers(0, 29),
    width=st.integers(24, 200),
)
def test_the_active_tab_is_always_seen_and_the_line_never_too_long(
    titles: list[str], active: int, width: int
) -> None:
    number = ChatNumber(active % len(titles) + 1)
    pieces, left, right = strip(labels(*titles), number, width)
    assert [piece.number for piece in pieces if piece.active] == [number]
    assert pieces[-1].start + pieces[-1].width + 2 * right <= width
    assert left == (pieces[0].number > 1)
    assert right == (pieces[-1].number < len(titles))
    assert all("\x1b" not in piece.text and "\n" not in piece.text for piece in pieces)
