"""Rates of chats that write together, and what is read of a process, on made-up numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.bench.terminal import cpu_of
from fleetchat.bench.ui import PROMPTS, _rows
from fleetchat.bench.ui_chat import CHATS, LETTERS, Measured
from fleetchat.bench.ui_rates import SETTLING, p95, rate_of
from fleetchat.fleet.telemetry import FleetSnapshot, SessionSnapshot
from tests.fakes.runtime import snapshot


def taken(at: float, *tokens: int, reading: int = 0) -> FleetSnapshot:
    """`tokens` of the sessions that write; `reading` more read their prompts."""
    writing = [SessionSnapshot(number, count, 0, 0, True, 0.0) for number, count in enumerate(tokens)]
    prefill = [SessionSnapshot(90 + number, 5, 0, 90, True, 0.0) for number in range(reading)]
    return replace(snapshot(), taken=at, sessions=(*writing, *prefill))


def test_a_rate_counts_while_all_write_and_have_settled() -> None:
    run = [taken(quarter / 4, 100 + quarter, 200 + 2 * quarter) for quarter in range(12)]
    assert rate_of(run, 2) == pytest.approx(12.0)
    early = [taken(-0.25, 0, 0), *run]
    early[1] = taken(0.0, 9000, 9000)  # within the time that does not count
    assert rate_of(early, 2) == pytest.approx(12.0)


def test_stretches_in_which_one_reads_or_rests_do_not_count() -> None:
    first = [taken(quarter / 4, quarter, quarter) for quarter in range(8)]
    pause = [taken(2.0, 500, reading=1), taken(2.25, 900)]
    second = [taken(3 + quarter / 4, 1000 + quarter, 1000 + quarter) for quarter in range(8)]
    assert rate_of([*first, *pause, *second], 2) == pytest.approx(8.0)


@pytest.mark.parametrize("run", [[], [taken(0.0, 1)], [taken(0.0, 1, 2), taken(SETTLING / 2, 5, 6)]])
def test_chats_that_never_wrote_together_have_no_rate(run: list[FleetSnapshot]) -> None:
    with pytest.raises(ValueError, match="2 chats never wrote"):
        rate_of(run, 2)


def test_p95_is_the_nearest_rank() -> None:
    assert p95([float(number) for number in range(100, 0, -1)]) == 95.0
    assert p95([7.0]) == 7.0


def test_processor_time_is_read_behind_the_name() -> None:
    stat = "12 (a ) b) S 1 12 12 0 -1 4194304 500 0 0 0 250 50 7 8 20 0 3 0 100 1000 50"
    assert cpu_of(stat, 100) == 3.0


def test_letters_stand_in_no_prompt_and_prompts_suffice() -> None:
    assert len(PROMPTS) > CHATS
    assert len(set(LETTERS)) == len(LETTERS)
    assert not set(LETTERS) & set("".join(PROMPTS))


def test_the_rows_have_the_ids_that_are_asked_for() -> None:
    chat = Measured(
        first_paints=[0.5, 0.7, 0.6],
        echoes=[0.01] * 19 + [0.05],
        cpu={"beside the chat": [0.2, 0.22], "whole screen": [0.25], "hidden": [0.15], "idle": [0.01]},
        memory=(100 << 20, 110 << 20),
    )
    rows = {row.id: row for row in _rows({"screen": [9.0, 18.0], "headless": [10.0, 20.0]}, chat)}
    assert rows["ui.echo/p95"].value == pytest.approx(10.0)
    assert rows["ui.throughput/headless"].ratio == pytest.approx(0.9)
    assert rows["ui.first-paint"].value == 0.6
    assert rows["ui.cpu/streaming"].value == pytest.approx(21.0)
    assert rows["ui.cpu/idle"].value == pytest.approx(1.0)
    assert rows["ui.cpu/panel-beside"].value == pytest.approx(6.0)
    assert rows["ui.cpu/panel-whole-screen"].value == pytest.approx(10.0)
    assert (rows["ui.memory"].value, rows["ui.memory"].baseline) == (110.0, 100.0)
