"""What is kept of a measurement, and what is not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetchat.engine.fast_settings import DEFAULT, HALF, PLAIN, Choice, Timing
from fleetchat.engine.settings_record import Records, SettingsKey, as_text, parse

KEY = SettingsKey("Some CPU", "2026.4.1", "CPU", 2, "ab" * 32, "converter 1")
CHOICE = Choice(DEFAULT, "measured here")
TIMINGS = {PLAIN: Timing(0.002, 0.004, 0.064), DEFAULT: Timing(0.001, 0.002, 0.032)}
ALL = (HALF, PLAIN, DEFAULT)


def test_the_file_has_the_choice_and_the_figures() -> None:
    document = json.loads(as_text(KEY, CHOICE, TIMINGS))
    assert document["measured"] == {
        "processor": "Some CPU",
        "openvino": "2026.4.1",
        "device": "CPU",
        "threads": 2,
        "model": "ab" * 32,
        "converter": "converter 1",
    }
    assert document["chosen"] == {"compute": "f32", "group": 32}
    assert document["figures"][1] == {
        "compute": "f32",
        "group": 32,
        "decode_ms": 1.0,
        "verify_ms": 2.0,
        "chunk_ms": 32.0,
        "score_ms": 2.0,
    }


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    records = Records(tmp_path / "new")
    assert records.find(KEY, ALL) is None
    records.keep(KEY, CHOICE, TIMINGS)
    assert records.find(KEY, ALL) == CHOICE
    assert [path.name for path in (tmp_path / "new").iterdir()] == [KEY.file_name]


@pytest.mark.parametrize(
    "change",
    [
        {"processor": "Other"},
        {"openvino": "2027.0"},
        {"device": "GPU"},
        {"threads": 1},
        {"model": "cd" * 32},
        {"converter": "converter 2"},
    ],
)
def test_another_machine_or_model_is_measured_anew(change: dict[str, Any], tmp_path: Path) -> None:
    other = replace(KEY, **change)
    Records(tmp_path).keep(KEY, CHOICE, TIMINGS)
    assert Records(tmp_path).find(other, ALL) is None
    assert parse(as_text(KEY, CHOICE, TIMINGS), other, ALL) is None


def test_what_may_not_be_used_any_more_is_measured_anew() -> None:
    text = as_text(KEY, Choice(HALF, ""), TIMINGS)
    assert parse(text, KEY, ALL) == Choice(HALF, "")
    assert parse(text, KEY, (PLAIN, DEFAULT)) is None


def changed(**changes: object) -> str:
    return json.dumps(json.loads(as_text(KEY, CHOICE, TIMINGS)) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        as_text(KEY, CHOICE, TIMINGS)[:-10],
        changed(format=2),
        changed(measured=None),
        changed(chosen=None),
        changed(chosen={"compute": "f32"}),
        changed(chosen={"compute": "f32", "group": 32, "more": 1}),
        changed(chosen={"compute": "f16", "group": 32}),
        changed(chosen={"compute": "f32", "group": True}),
        changed(chosen={"compute": ["f32"], "group": 32}),
        changed(chosen={"compute": "f32", "group": 32.0}),
        changed(reason=None),
    ],
)
def test_a_damaged_file_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / KEY.file_name).write_text(text, encoding="utf-8")
    assert Records(tmp_path).find(KEY, ALL) is None
    Records(tmp_path).keep(KEY, CHOICE, TIMINGS)
    assert Records(tmp_path).find(KEY, ALL) == CHOICE


def test_a_file_that_is_no_text_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / KEY.file_name).write_bytes(b"\xff\xfe\x00")
    assert Records(tmp_path).find(KEY, ALL) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file")
    records.keep(KEY, CHOICE, TIMINGS)
    records.begin(KEY, HALF)
    records.ended(KEY)
    assert records.find(KEY, ALL) is None
    assert records.deadly(KEY) == frozenset()


def test_what_was_begun_and_never_ended_is_remembered(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert records.deadly(KEY) == frozenset()
    records.begin(KEY, HALF)
    assert records.deadly(KEY) == {HALF}
    assert records.deadly(replace(KEY, openvino="2027.0")) == frozenset()
    records.ended(KEY)
    assert records.deadly(KEY) == frozenset()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"compute": "bf16"}', '{"compute": [], "group": 1}'])
def test_a_damaged_note_of_what_was_begun_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / f"{KEY.file_name}.trying").write_text(text)
    assert Records(tmp_path).deadly(KEY) == frozenset()
