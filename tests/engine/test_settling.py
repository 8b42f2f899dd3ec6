"""When is measured, what is tried, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetchat.engine.fast_settings import DEFAULT, HALF, PLAIN, Choice, FastSettings, Timing
from fleetchat.engine.settings_record import Records, SettingsKey
from fleetchat.engine.settling import settle

KEY = SettingsKey("Some CPU", "2026.4.1", "CPU", 2, "ab" * 32, "converter 1")
ALL = (HALF, PLAIN, DEFAULT)


class Bench:
    """Timings by settings, one after the other; what is raised instead of one."""

    def __init__(self, **times: list[float] | Exception) -> None:
        self._times = {HALF: times.get("half"), PLAIN: times.get("plain"), DEFAULT: times.get("default")}
        self.asked: list[FastSettings] = []
        self.announced = 0

    def time(self, settings: FastSettings) -> Timing:
        self.asked.append(settings)
        times = self._times[settings]
        if isinstance(times, Exception):
            raise times
        assert times
        seconds = times.pop(0)
        return Timing(seconds, seconds, seconds)

    def settle(self, folder: Path, possible: tuple[FastSettings, ...] = ALL) -> Choice:
        return settle(KEY, Records(folder), possible, self.time, self._announce)

    def _announce(self) -> None:
        self.announced += 1


def test_the_first_load_measures_and_the_next_one_reads(tmp_path: Path) -> None:
    first = Bench(half=[1.2], plain=[1.5], default=[1.0])
    choice = first.settle(tmp_path)
    assert choice.settings == DEFAULT
    assert (first.asked, first.announced) == ([HALF, PLAIN, DEFAULT], 1)
    second = Bench()
    assert second.settle(tmp_path) == choice
    assert (second.asked, second.announced) == ([], 0)


def test_a_damaged_record_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / KEY.file_name).write_text("{")
    assert Bench(half=[1.2], plain=[1.5], default=[1.0]).settle(tmp_path).settings == DEFAULT
    assert Bench().settle(tmp_path).settings == DEFAULT


def test_another_than_the_default_is_confirmed(tmp_path: Path) -> None:
    bench = Bench(half=[1.2], plain=[0.8, 0.9], default=[1.0, 1.1])
    assert bench.settle(tmp_path).settings == PLAIN
    assert bench.asked == [HALF, PLAIN, DEFAULT, DEFAULT, PLAIN]


def test_a_default_that_was_disturbed_gets_a_second_chance(tmp_path: Path) -> None:
    bench = Bench(half=[3.0], plain=[1.5, 1.5], default=[2.0, 1.0])
    choice = bench.settle(tmp_path)
    assert choice.settings == DEFAULT
    assert choice.reason == (
        "measured here: f32, activations not quantised takes 50 % more time; "
        "bf16, activations quantised in groups of 32 takes 200 % more time"
    )


def test_a_candidate_that_fails_is_left_out(tmp_path: Path) -> None:
    bench = Bench(half=RuntimeError("no bf16 here"), plain=[1.5], default=[1.0])
    choice = bench.settle(tmp_path)
    assert (choice.settings, choice.reason) == (
        DEFAULT,
        "measured here: f32, activations not quantised takes 50 % more time",
    )
    assert Records(tmp_path).deadly(KEY) == frozenset()  # the process has lived through it


def test_what_the_default_raises_is_raised_and_nothing_is_kept(tmp_path: Path) -> None:
    bench = Bench(half=[1.0], plain=RuntimeError("no such file"), default=RuntimeError("no such file"))
    with pytest.raises(RuntimeError, match="no such file"):
        bench.settle(tmp_path)
    assert Records(tmp_path).find(KEY, ALL) is None


class Killed(BaseException):
    """The process ends."""


def test_what_ended_the_process_is_not_tried_again(tmp_path: Path) -> None:
    def dies(settings: FastSettings) -> Timing:
        raise Killed

    with pytest.raises(Killed):
        settle(KEY, Records(tmp_path), ALL, dies, lambda: None)
    bench = Bench(plain=[1.5], default=[1.0])
    choice = bench.settle(tmp_path)
    assert (choice.settings, bench.asked) == (DEFAULT, [PLAIN, DEFAULT])
    assert choice.reason.endswith("; bf16, activations quantised in groups of 32 once ended the process")


@pytest.mark.parametrize("possible", [(PLAIN, DEFAULT), ALL])
def test_a_stage_that_was_done_first_decides_for_the_others(
    possible: tuple[FastSettings, ...], tmp_path: Path
) -> None:
    theirs = Choice(PLAIN, "measured by another")
    bench = Bench(half=[1.2], plain=[1.5], default=[1.0])

    def time_beside_another(settings: FastSettings) -> Timing:
        figures: Mapping[FastSettings, Timing] = {}
        Records(tmp_path).keep(KEY, theirs, figures)
        return bench.time(settings)

    assert settle(KEY, Records(tmp_path), possible, time_beside_another, lambda: None) == theirs
    assert Records(tmp_path).find(KEY, possible) == theirs
