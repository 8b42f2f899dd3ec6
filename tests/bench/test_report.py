"""The JSON that programs read and the table that people read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleetchat.bench.pairs import Row
from fleetchat.bench.report import Report, as_json, as_table, number

MACHINE = {
    "cpu": "Some CPU",
    "cores": 2,
    "memory_gb": 8.0,
    "system": "Linux",
    "python": "3.11",
    "openvino": "1",
    "load": 0.5,
}
REPORT = Report(
    title="one against the other",
    setup="both on core 0",
    formula="a / b",
    ceiling="1",
    rows=(Row("fast.row", 50.25, "tokens/s", 48.0, 1.05, 0.9, 1.2, 9), Row("lone", 0.0004, "s")),
    notes=("something else",),
)


def test_the_json_has_exactly_the_agreed_fields() -> None:
    document = json.loads(as_json(REPORT, MACHINE))
    assert set(document) == {"machine", "rows"}
    assert document["machine"] == MACHINE
    assert document["rows"] == [
        {
            "id": "fast.row",
            "value": 50.25,
            "unit": "tokens/s",
            "baseline": 48.0,
            "ratio": 1.05,
            "ratio_min": 0.9,
            "ratio_max": 1.2,
            "pairs": 9,
        },
        {
            "id": "lone",
            "value": 0.0004,
            "unit": "s",
            "baseline": None,
            "ratio": None,
            "ratio_min": None,
            "ratio_max": None,
            "pairs": 0,
        },
    ]


def test_the_table_says_setup_ceiling_formula_and_rows() -> None:
    lines = as_table(REPORT, MACHINE).splitlines()
    assert lines[0] == "measured  one against the other"
    assert lines[1] == "machine   Some CPU, 2 cores, 8.0 GiB, Linux, Python 3.11, OpenVINO 1, load 0.5 before"
    assert lines[2:5] == ["set-up    both on core 0", "formula   a / b", "ceiling   1"]
    assert lines[6].split() == ["row", "value", "baseline", "unit", "ratio", "range", "pairs"]
    assert lines[7].split() == ["fast.row", "50.2", "48", "tokens/s", "1.05", "0.9", "…", "1.2", "9"]
    assert lines[8].split() == ["lone", "0.0004", "-", "s", "-", "-", "-"]
    assert lines[9] == "note: something else"


def test_numbers_have_three_digits_that_count() -> None:
    shown = [number(value) for value in (None, 0, 12345.6, 99.94, 0.123456, 0.00123)]
    assert shown == ["-", "0", "12,346", "99.9", "0.123", "0.00123"]
    small = [number(value) for value in (0.0342, 0.0006, 0.000634, -0.00001234, 1e-6, 1e-7)]
    assert small == ["0.0342", "0.0006", "0.000634", "-0.0000123", "0.000001", "1.00e-07"]


@given(some.floats(1e-6, 1e6))
def test_numbers_are_plain_and_right_to_three_digits(value: float) -> None:
    shown = number(value)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.00501)
