"""Plans of `bench big`, and what is told of a stage and of the chain that is only estimated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import numpy as np
import pytest

from fleetchat.bench import big_build, big_chain
from fleetchat.bench.big import measure_big
from fleetchat.bench.big_plan import ALIKE, BigPlan, lacking, layer_bytes, model_bytes, plan_for, table_bytes
from fleetchat.bench.big_stages import LEG_SECONDS, PROMPT, StageTimes, estimated_rows, stage_rows
from fleetchat.bench.pairs import QUICK
from fleetchat.bench.peak import rss_anon
from fleetchat.bench.setting import Setting
from fleetchat.bench.synthetic import write_synthetic
from fleetchat.errors import BuildError, InputError
from fleetchat.fleet.shapes import SHAPES, ModelShape

SMALL = ModelShape("llama-small", 4, 256, 4, 2, 64, 512, 1024, tied=False)
TIMES = StageTimes(
    shard=1_000_000_000,
    make=10.0,
    cut=20.0,
    cut_memory=1_200_000_000,
    load=5.0,
    memory=1_100_000_000,
    prefill=4.0,
    decode=0.25,
)


def plan(name: str, **changes: object) -> BigPlan:
    asked: dict[str, object] = {"stages": None, "one_by_one": False, "keep": False, "quick": False, **changes}
    return plan_for(name, folder=Path("nowhere"), **asked)  # type: ignore[arg-type]


def test_the_sizes_are_those_of_the_files_that_are_written(tmp_path: Path) -> None:
    size = write_synthetic(tmp_path, SMALL).with_suffix(".bin").stat().st_size
    assert size == pytest.approx(model_bytes(SMALL), rel=0.02)


def test_8b_is_a_chain_and_70b_is_measured_stage_by_stage() -> None:
    eight, seventy = plan("llama-3.1-8b"), plan("llama-3.3-70b")
    assert (eight.name, eight.stages, eight.one_by_one) == ("8b", 2, False)
    assert (seventy.name, seventy.one_by_one) == ("70b", True)
    assert seventy.ranges[0][0] == 0
    assert seventy.ranges[-1][1] == 79
    assert seventy.disk_needed < 60e9
    assert seventy.memory_needed < 20e9
    whole = sum(map(seventy.stage_bytes, range(seventy.stages)))
    assert whole == model_bytes(SHAPES["llama-3.3-70b"])


def test_quick_takes_the_small_shape() -> None:
    assert plan_for(None, None, False, Path("nowhere"), keep=False, quick=True).shape.name == "llama-3.2-1b"
    assert plan_for(None, None, False, Path("nowhere"), keep=False, quick=False).shape.name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("name", "stages", "reason"),
    [
        ("llama-3.1-9b", None, r"--model: no shape 'llama-3.1-9b'.*llama-3.1-8b"),
        ("llama-3.2-1b", 17, "--stages must be from 1 to 16, not 17"),
    ],
)
def test_what_cannot_be_measured_is_refused(name: str, stages: int | None, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        plan(name, stages=stages)


def test_too_little_disk_is_said_in_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan_for("llama-3.3-70b", None, False, tmp_path / "new", keep=False, quick=False)

    def free(path: Path) -> object:
        assert path == tmp_path
        return type("Usage", (), {"free": 29 << 30})

    monkeypatch.setattr("fleetchat.bench.big_plan.shutil.disk_usage", free)
    monkeypatch.setattr("fleetchat.bench.big_plan.available_memory", lambda: 1 << 40)
    assert str(lacking(asked)) == f"disk: 32 GB needed in {tmp_path / 'new'}, 31 GB free"


def test_too_little_memory_is_said_in_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan_for("llama-3.1-8b", None, False, tmp_path, keep=False, quick=False)
    usage = type("Usage", (), {"free": 1 << 50})
    monkeypatch.setattr("fleetchat.bench.big_plan.shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr("fleetchat.bench.big_plan.available_memory", lambda: 4_000_000_000)
    assert str(lacking(asked)).startswith("memory: 12.")
    monkeypatch.setattr("fleetchat.bench.big_plan.available_memory", lambda: 1 << 40)
    assert lacking(asked) is None


def test_a_stage_is_told_with_its_memory_against_its_shard() -> None:
    rows = {row.id: row for row in stage_rows("70b", 2, TIMES)}
    assert rows["big.70b.stage.2.shard"].value == 1.0
    assert rows["big.70b.stage.2.decode"].value == 250.0
    assert rows["big.70b.stage.2.check"].value == 0.0
    assert rows["big.70b.stage.2.memory"].ratio == pytest.approx(1.1)
    assert rows["big.70b.stage.2.build.memory"].ratio == pytest.approx(1.2)


def test_the_estimate_adds_the_stages_and_the_legs() -> None:
    asked = plan("llama-3.3-70b", stages=4)
    rows = {row.id: row for row in estimated_rows(asked, [TIMES] * 4)}
    carried = 8192 * 2 / 125e6  # seconds of one row over a gigabit
    one = 4 * 0.25 + 5 * LEG_SECONDS + 3 * carried
    assert rows["big.70b.chain.decode.1"].value == pytest.approx(1 / one)
    assert rows["big.70b.chain.decode.full"].value == 4.0
    first = 4 * 4.0 + 5 * LEG_SECONDS + 3 * PROMPT * carried
    assert rows["big.70b.chain.ttft.200"].value == pytest.approx(first)
    assert all("estimate" in row.unit for row in rows.values())


def test_anonymous_memory_is_read_from_the_status() -> None:
    assert rss_anon("VmRSS:\t  900 kB\nRssAnon:\t  512 kB\nRssFile:\t  4 kB") == 512 * 1024
    assert rss_anon("") == 0


def test_every_shape_can_be_made_up() -> None:
    for name in ALIKE:
        shape = SHAPES[name]
        assert shape.hidden % 128 == shape.intermediate % 128 == 0
        assert layer_bytes(shape) > 0.5 * shape.layer_values
        assert table_bytes(shape) > shape.table_values


@pytest.mark.slow
def test_a_stage_process_cuts_loads_and_runs_on_what_the_stage_before_put_out(tmp_path: Path) -> None:
    """Both stages of a small model in turn; the rows that the second gets are those of the first."""
    for index in (0, 1):
        ranges = [[0, 1], [2, 3]]
        whole = write_synthetic(tmp_path / "made", SMALL, distinct_layers=ranges[index])
        (tmp_path / f"cut-{index}").mkdir()
        order = {
            "whole": str(whole),
            "folder": str(tmp_path / f"cut-{index}"),
            "ranges": ranges,
            "index": index,
            "precision": "fast",
            "threads": 1,
            "entering": str(tmp_path / "rows-1.npz") if index else None,
            "leaving": str(tmp_path / f"rows-{index + 1}.npz"),
            "prompt": 20,
            "steps": 2,
        }
        with Popen(
            [sys.executable, "-m", "fleetchat.bench.big_stage"], stdin=PIPE, stdout=PIPE, text=True
        ) as child:
            said, _ = child.communicate(json.dumps(order) + "\n")
        *steps, result = map(json.loads, said.splitlines())
        assert [one["step"] for one in steps] == [
            "cutting",
            "loading",
            "running",
            "comparing with the whole",
        ]
        assert result["apart"] == 0.0
        assert result["decode_s"] > 0
        assert 0.1 < result["largest"] < 1000
        assert (tmp_path / f"cut-{index}" / f"stage-{index:02}.bin").is_file()
    with np.load(tmp_path / "rows-1.npz") as rows:
        assert rows["prompt"].shape == (20, SMALL.hidden)
        assert rows["steps"].shape == (2, SMALL.hidden)
    assert not (tmp_path / "rows-2.npz").exists()


@pytest.mark.slow
@pytest.mark.trio
async def test_a_chain_of_a_small_shape_is_built_loaded_asked_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, SMALL.name, SMALL)
    for module in (big_build, big_chain):
        monkeypatch.setattr(module, "DRAFT", SMALL.name)
    asked = BigPlan(SMALL, 2, False, tmp_path / "big", engines=("paged",), prompts=(16, 40))
    notes: list[str] = []
    report = await measure_big(Setting(tmp_path, QUICK, (), notes.append), asked)
    rows = {row.id.removeprefix("big.small."): row for row in report.rows}
    assert {"generate", "build", "shard.0", "shard.1", "load.paged", "load.draft.paged"} <= set(rows)
    assert {"ttft.16.paged", "decode.16.paged", "ttft.40.paged", "decode.40.paged", "draft.paged"} <= set(
        rows
    )
    assert all(row.value > 0 for row in report.rows)
    assert rows["recovery.paged"].baseline == pytest.approx(rows["load.paged"].value + 15.0)
    assert not asked.folder.exists()
    assert any("a stage is killed" in note for note in notes)


@pytest.mark.trio
async def test_what_no_machine_holds_is_skipped_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 29 << 30})
    monkeypatch.setattr("fleetchat.bench.big_plan.shutil.disk_usage", lambda path: usage)
    asked = plan_for("llama-3.3-70b", None, False, tmp_path, keep=False, quick=False)
    report = await measure_big(Setting(tmp_path, QUICK, (), print), asked)
    assert report.rows == ()
    (note,) = report.notes
    assert note.startswith("skipped: disk: 32 GB needed")


@pytest.mark.trio
async def test_a_chain_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr("fleetchat.bench.big_plan.shutil.disk_usage", lambda path: usage)
    asked = plan_for("llama-3.1-8b", None, False, tmp_path, keep=False, quick=False)
    with pytest.raises(
        BuildError, match=r"llama-3.1-8b cannot be measured here: disk: 1\d GB needed in .*, 0 GB"
    ):
        await measure_big(Setting(tmp_path, QUICK, (), print), asked)


def test_stages_of_one_shape_are_measured_once_unless_all_are_asked_for() -> None:
    asked = plan("llama-3.3-70b", stages=10)
    measured = asked.measured_stages
    assert measured[0] == 0
    assert measured[-1] == 9
    assert len(measured) < 10
    for index in range(10):
        assert asked.stage_bytes(asked.stands_for(index)) == asked.stage_bytes(index)
    assert plan("llama-3.3-70b", stages=10, every_stage=True).measured_stages == tuple(range(10))
