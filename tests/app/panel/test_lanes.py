"""Blocks become cells: who had the stage when, and where it was idle."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleetchat.app.panel.history import BlockHistory
from fleetchat.app.panel.lanes import IDLE, UNKNOWN, Cell, lane_cells, lane_spans, timeline_lines
from fleetchat.app.panel.lines import text_of, width_of
from fleetchat.fleet.timeline import Block, WorkKind
from tests.fakes.panel import busy_view, prefill_view, timeline

DECODE, VERIFY, PREFILL = WorkKind.DECODE, WorkKind.VERIFY, WorkKind.PREFILL


def block(start: float, end: float, session: int = 1, kind: WorkKind = DECODE) -> Block:
    return Block(0, session, kind, 1, start, end)


def test_a_block_covers_its_cells() -> None:
    blocks = [block(0.2, 0.4), block(0.5, 0.8, 2, VERIFY)]
    one, two = Cell(DECODE, 1), Cell(VERIFY, 2)
    assert lane_cells(blocks, 0.0, 1.0, 1.0, 10) == [IDLE, IDLE, one, one, IDLE, two, two, two, IDLE, IDLE]


def test_a_cell_shows_what_covers_most_of_it() -> None:
    blocks = [block(0.0, 0.3), block(0.3, 0.9, 2, VERIFY)]
    assert lane_cells(blocks, 0.0, 1.0, 1.0, 1) == [Cell(VERIFY, 2)]
    assert lane_cells([block(0.0, 0.3)], 0.0, 1.0, 1.0, 1) == [IDLE]
    halves = [block(0.0, 0.2), block(0.2, 0.3, 2), block(0.3, 0.5)]
    assert lane_cells(halves, 0.0, 1.0, 1.0, 1) == [IDLE]
    assert lane_cells([*halves, block(0.5, 0.6)], 0.0, 1.0, 1.0, 1) == [Cell(DECODE, 1)]


def test_what_is_not_known_yet_is_no_bubble() -> None:
    assert lane_cells([block(0.0, 0.5)], 0.0, 1.0, 0.7, 10)[5:] == [IDLE, IDLE, UNKNOWN, UNKNOWN, UNKNOWN]


def test_blocks_at_the_edges_are_cut() -> None:
    assert lane_cells([block(-5.0, 0.1), block(0.9, 9.0, 2)], 0.0, 1.0, 1.0, 10) == [
        Cell(DECODE, 1),
        *[IDLE] * 8,
        Cell(DECODE, 2),
    ]


@pytest.mark.parametrize("width", [0, -3])
def test_without_room_there_are_no_cells(width: int) -> None:
    assert lane_cells([block(0.0, 1.0)], 0.0, 1.0, 1.0, width) == []
    assert lane_cells([block(0.0, 1.0)], 1.0, 1.0, 1.0, 5) == []


@settings(max_examples=60)
@given(
    some.lists(some.tuples(some.integers(0, 30), some.integers(1, 30), some.integers(1, 3)), max_size=20),
    some.integers(1, 40),
)
def test_cells_agree_with_the_milliseconds_one_by_one(runs: list[tuple[int, int, int]], width: int) -> None:
    """A lane of whole milliseconds, each asked who had it."""
    now, blocks, owners = 0, [], {}
    for pause, length, session in runs:
        now += pause
        blocks.append(block(now / 1000, (now + length) / 1000, session))
        owners |= dict.fromkeys(range(now, now + length), session)
        now += length
    seconds = width * 7  # 7 ms a cell
    cells = lane_cells(blocks, 0.0, seconds / 1000, seconds / 1000, width)
    for place, cell in enumerate(cells):
        counts: dict[int, int] = defaultdict(int)
        for millisecond in range(place * 7, place * 7 + 7):
            counts[owners.get(millisecond, 0)] += 1
        idle = counts.pop(0, 0)
        most = max(counts.values(), default=0)
        if cell.kind is None:
            assert idle >= most
        else:
            assert counts[cell.session] == most >= idle


def test_a_run_begins_with_its_tab_and_goes_on_with_its_kind() -> None:
    cells = (
        [Cell(PREFILL, 1)] * 3
        + [Cell(DECODE, 2)]
        + [IDLE] * 2
        + [Cell(VERIFY, 2)] * 2
        + [Cell(DECODE, 7)] * 2
    )
    spans = lane_spans(cells, busy_view(), "stage 0")
    assert "".join(span.text for span in spans) == "1██▒··2▓?▒"
    assert [span.look for span in spans] == ["tab-1", "tab-2", "dim", "tab-2", "dim"]


def history() -> BlockHistory:
    blocks = BlockHistory()
    blocks.take(timeline())
    return blocks


@pytest.mark.parametrize("width", [20, 46, 78, 138])
def test_lanes_stand_below_each_other(width: int) -> None:
    view = busy_view()
    lines = timeline_lines(view, history().window(100.0, 1.0), width)
    assert all(width_of(line) <= width for line in lines)
    texts = [text_of(line) for line in lines]
    assert [text.split()[0] for text in texts[:4]] == ["──", "stage", "stage", "drafting"]
    shares = [text.split()[-1] for text in texts[1:3]]
    shown = timeline()
    assert shares == [f"{lane.bubbles:.0%}" for lane in shown.stages]


def test_kinds_can_be_told_without_colour() -> None:
    blocks = BlockHistory()
    blocks.take(timeline(prefill=True))
    text = "\n".join(text_of(line) for line in timeline_lines(prefill_view(), blocks.window(100.0, 1.0), 90))
    assert "3██████" in text
    text = "\n".join(text_of(line) for line in timeline_lines(busy_view(), history().window(100.0, 1.0), 114))
    assert "1▒2▓··1▒2▓··" in text
    assert "2░░" in text
    assert "█ prefill  ▓ verify  ▒ decode  ░ draft  · bubble   1 chat 1   2 chat 2" in text


def test_drafting_has_no_bubbles() -> None:
    lines = timeline_lines(busy_view(), history().window(100.0, 1.0), 90)
    assert "·" not in text_of(lines[3])
    assert "%" not in text_of(lines[3])


def test_before_the_first_block_a_sentence_stands_there() -> None:
    assert [text_of(line) for line in timeline_lines(busy_view(), None, 40)][1] == "nothing was computed yet"


def test_of_an_unknown_second_no_share_is_told() -> None:
    shown = replace(timeline(), complete_until=99.0)
    assert text_of(timeline_lines(busy_view(), shown, 90)[1]).endswith("–")
