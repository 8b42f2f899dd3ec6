"""The command line of `bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetchat.bench.pairs import FULL, QUICK, Row
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.cli import bench
from fleetchat.cli.main import build_parser, main
from fleetchat.errors import InputError

REPORT = Report("a title", "", "", "", (Row("parity.1stage", 50.0, "tokens/s", 50.0, 1.0, 1.0, 1.0, 3),))


def test_json_is_all_that_stdout_carries(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    seen: list[Setting] = []

    async def measure(setting: Setting) -> Report:
        seen.append(setting)
        setting.note("pair 1 of 3")
        return REPORT

    options = build_parser().read(["bench", "parity", "--quick", "--json", "--store", str(tmp_path)])
    assert bench.run(options, measure) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["rows"][0]["id"] == "parity.1stage"
    assert err == "pair 1 of 3\n"
    assert seen[0].store_root == tmp_path
    assert seen[0].effort is QUICK


def test_without_json_it_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    async def measure(setting: Setting) -> Report:
        assert setting.effort is FULL
        return REPORT

    assert bench.run(build_parser().read(["bench", "parity"]), measure) == 0
    assert "measured  a title" in capsys.readouterr().out


def test_a_measurement_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "MEASUREMENT" in capsys.readouterr().err


def test_wrong_cores_are_wrong_usage() -> None:
    with pytest.raises(InputError, match=r"core 4096 cannot be used|cannot be pinned"):
        bench.setting_of(build_parser().read(["bench", "parity", "--cores", "4096"]))


def test_the_plan_of_scale_is_what_was_said() -> None:
    words = [
        "bench",
        "scale",
        "--sessions",
        "8",
        "--drafter",
        "ngram",
        "--draft-depth",
        "4",
        "--workload",
        "code",
    ]
    assert bench.plan_of(build_parser().read(words)).name == "scale.2x8.ngram.4.masked.code"


@pytest.mark.parametrize("depth", ["many", "-1", "0"])
def test_a_wrong_depth_is_refused(depth: str) -> None:
    with pytest.raises(InputError, match="--draft-depth"):
        bench.plan_of(build_parser().read(["bench", "scale", f"--draft-depth={depth}"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--soak", "0"], "--soak takes a number of seconds above 0"),
        (["--soak", "5", "--faults", "-1"], "--faults must be 0 or more"),
        (["--faults", "3"], "--faults goes with --soak"),
    ],
)
def test_a_soak_that_cannot_be_is_refused(options: list[str], message: str) -> None:
    arguments = build_parser().read(["bench", "scale", *options])
    with pytest.raises(InputError, match=message):
        arguments.run(arguments)
