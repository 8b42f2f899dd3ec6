"""The machine and its cores."""

from __future__ import annotations

import json

import pytest

from fleetchat.bench import setting
from fleetchat.bench.machine import describe_machine
from fleetchat.bench.setting import parse_cores
from fleetchat.errors import InputError


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "core_numbers", lambda: (0, 1, 4, 5))


def test_without_the_option_all_cores_are_taken() -> None:
    assert parse_cores(None) == (0, 1, 4, 5)


def test_cores_keep_their_order() -> None:
    assert parse_cores("5,0") == (5, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a,b", "not 'a,b'"), ("", "not ''"), ("0,7", "core 7 cannot be used"), ("1,1", "twice")],
)
def test_wrong_cores_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_cores(text)
    assert said in refused.value.message


def test_where_nothing_can_be_pinned_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "core_numbers", lambda: ())
    assert parse_cores(None) == ()
    with pytest.raises(InputError, match="cannot be pinned"):
        parse_cores("0")


def test_the_machine_is_described_in_json() -> None:
    machine = json.loads(json.dumps(describe_machine()))
    assert machine["cores"] >= 1
    assert machine["openvino"][0].isdigit()
