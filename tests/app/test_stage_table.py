from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from fleetchat.app.stage_table import fitted, milliseconds, one_line, table_lines
from fleetchat.fleet.telemetry import FleetSnapshot, Percentiles, SpeculationSnapshot, StageState
from tests.fakes.runtime import snapshot, stage


def test_at_80_columns_every_column_is_there() -> None:
    assert table_lines(snapshot(), 76, 8) == [
        "Stage Address         Layers State      Compute   Queue Network  Cells",
        "    0 127.0.0.1:41000    0–9 ready          3.2     0.1       –  1,234",
        "    1 127.0.0.1:41001  10–19 ready          3.2     0.1     0.2  1,234",
        "  21.4 tokens/s   return leg   0.3 ms" + " " * 39,
    ]


def test_at_140_columns_titles_carry_their_units() -> None:
    title, first, *_ = table_lines(snapshot(), 136, 8)
    assert title == (
        "Stage   Address           Layers   State        Compute ms   Queue ms   Network ms   Cells live"
        "   Cells dead"
    )
    assert len(first) == len(title)


@pytest.mark.parametrize("width", [*range(1, 130, 3), 136])
@pytest.mark.parametrize("height", [1, 8])
def test_no_line_is_wider_than_the_screen(width: int, height: int) -> None:
    wide = stage(1, address="[2001:db8::1]:41001 東京" * 3, state=StageState.LOST, detail="gone " * 40)
    lines = table_lines(snapshot(stage(0), wide), width, height)
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 5


def test_narrow_screens_lose_the_least_important_columns_first() -> None:
    title = table_lines(snapshot(), 60, 8)[0]
    assert title.split() == ["Stage", "State", "Compute", "Queue", "Network", "Cells"]
    assert table_lines(snapshot(), 44, 8)[0].split() == ["Stage", "State", "Compute", "Network", "Cells"]


def test_what_drafting_does_has_a_line_of_its_own() -> None:
    counted = SpeculationSnapshot(
        drafter="ngram",
        rounds=200,
        drafted=150,
        accepted=92,
        rollbacks=41,
        cells_masked=58,
        compactions=1,
        depth=4,
        reason="4 drafts",
        recent=(0.0, 0.25, 0.5, 0.75, 1.0),
    )
    lines = table_lines(replace(snapshot(), speculation=counted), 76, 8)
    assert lines[-1].rstrip() == "drafts  61%        ▁▃▅▆█  depth  4  41 rollbacks  58 masked  1 compactions"


def test_without_drafts_there_is_no_line_about_them() -> None:
    nothing = SpeculationSnapshot("none", 9, 0, 0, 0, 0, 0, 0, "", ())
    with_nothing = table_lines(replace(snapshot(), speculation=nothing), 76, 8)
    assert with_nothing == table_lines(snapshot(), 76, 8)


def test_without_room_one_line_says_how_the_fleet_is() -> None:
    lost = stage(1, state=StageState.LOST, detail="connection reset")
    assert table_lines(snapshot(stage(0), stage(1)), 76, 3) == [
        "2 of 2 stages ready   21.4 tokens/s   return leg   0.3 ms"
    ]
    assert table_lines(snapshot(stage(0), lost), 76, 3) == [
        "Stage 1 at 127.0.0.1:41001 is lost: connection reset",
        "1 of 2 stages ready   21.4 tokens/s   return leg   0.3 ms",
    ]


def widths(shown: FleetSnapshot) -> list[int]:
    return [len(line) for line in table_lines(shown, 136, 8)]


def test_numbers_do_not_change_the_width() -> None:
    small = snapshot(stage(0, compute=0.1), stage(1, compute=9.9), tokens_per_s=0.0)
    large = snapshot(stage(0, compute=9999.9), stage(1, compute=123.4), tokens_per_s=999.9)
    assert widths(small) == widths(large)


def test_foreign_text_stays_in_its_line() -> None:
    assert one_line("a\nb\u2028c \x1b[2Jd") == "a b c [2Jd"
    lines = table_lines(snapshot(stage(0, address="evil\n\x1b]0;x\x07"), stage(1)), 76, 8)
    assert len(lines) == 4
    assert lines[1].startswith("    0 evil ]0;x")


def test_fitting_counts_cells() -> None:
    assert fitted("東京タワー", 7) == "東京タ…"
    assert fitted("東京タワー", 6) == "東京… "
    assert fitted("ab", 4, right=True) == "  ab"
    assert fitted("abc", 1) == "…"
    assert fitted("abc", 0) == ""


def test_milliseconds() -> None:
    assert milliseconds(Percentiles()) == "–"
    assert milliseconds(Percentiles(0.04, 0.1, 3)) == "0.0"
    assert milliseconds(Percentiles(12345.6, 0.1, 3)) == "12346"


def test_a_lost_stage_is_told_with_what_happens_now() -> None:
    coming = stage(1, state=StageState.RECOVERING, detail="waiting for it to answer")
    sentence = (
        "Stage 1 (127.0.0.1:41001) stopped answering. "
        "It is being restarted; your answers go on by themselves."
    )
    lines = table_lines(replace(snapshot(stage(0), coming), trouble=sentence), 76, 8)
    assert lines[2].split()[:4] == ["1", "127.0.0.1:41001", "10–19", "recovering"]
    assert lines[3:5] == [
        "Stage 1 (127.0.0.1:41001) stopped answering. It is being restarted; your",
        "answers go on by themselves.",
    ]


def test_a_stage_that_is_silent_for_a_moment_is_told_as_well() -> None:
    silent = stage(1, state=StageState.STALLED, detail="nothing was heard of it for 3 s")
    lines = table_lines(snapshot(stage(0), silent), 76, 8)
    assert lines[3] == "Stage 1 at 127.0.0.1:41001 is stalled: nothing was heard of it for 3 s"
