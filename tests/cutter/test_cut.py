"""A cut writes stage files and describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter.cut import cut_model, describe
from fleetchat.errors import CutRefused, SourceError
from tests.cutter.fixture_models import HIDDEN, LAYERS, VOCABULARY, whole_ir


def no_progress(step: str, done: int, total: int) -> None:
    """For tests that do not look at it."""


def test_a_model_is_described_by_its_graph() -> None:
    shape = describe(whole_ir("falcon"))
    assert (shape.layers, shape.hidden, shape.vocabulary) == (LAYERS, HIDDEN, VOCABULARY)
    assert shape.window == 0
    assert len(shape.layer_costs) == LAYERS
    assert shape.embedding_cost == 0
    embedding, *layers, head = shape.weight_bytes
    assert embedding >= VOCABULARY * HIDDEN * 4
    assert head == VOCABULARY * HIDDEN * 4
    linear_weights = HIDDEN * (HIDDEN + 2 * 16) + HIDDEN * HIDDEN + 2 * HIDDEN * 192
    assert all(linear_weights * 4 <= size < linear_weights * 4 + 2048 for size in layers)


@pytest.mark.slow
def test_stage_files_are_written_and_described(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    result = cut_model(
        whole_ir("llama"),
        tmp_path,
        stages=None,
        ranges=((0, 2), (3, 3)),
        on_progress=lambda step, done, total: steps.append((step, done, total)),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "stage-00.bin",
        "stage-00.xml",
        "stage-01.bin",
        "stage-01.xml",
    ]
    first, last = result.stages
    assert (first.index, first.first_layer, first.last_layer) == (0, 0, 2)
    assert (last.index, last.first_layer, last.last_layer) == (1, 3, 3)
    assert (first.xml, first.bin) == (tmp_path / "stage-00.xml", tmp_path / "stage-00.bin")
    assert first.inputs == ("input_ids", "attention_mask", "position_ids", "beam_idx")
    assert last.inputs == ("inputs_embeds", "attention_mask", "position_ids", "beam_idx", "logit_rows")
    assert first.kv_shapes == ((2, 16),) * 6
    assert last.kv_shapes == ((2, 16),) * 2
    assert (first.attention_layers, first.fused_layers) == (3, 3)
    assert (last.attention_layers, last.fused_layers) == (1, 1)
    assert first.cost == sum(result.shape.layer_costs[:3])
    assert last.cost == result.shape.layer_costs[3] + result.shape.head_cost
    assert steps == [
        ("reading the model", 0, 1),
        ("cutting layers 0 to 2", 0, 2),
        ("cutting layers 3 to 3", 1, 2),
        ("cut", 2, 2),
    ]


@pytest.mark.slow
def test_a_number_of_stages_is_balanced(tmp_path: Path) -> None:
    result = cut_model(whole_ir("qwen3"), tmp_path, stages=2, ranges=None, on_progress=no_progress)
    assert [(stage.first_layer, stage.last_layer) for stage in result.stages] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("stages", "ranges", "message"),
    [
        (5, None, "cannot cut 4 layers into 5 stages"),
        (None, ((0, 2),), "the stages have 3 layers, but the model has 4"),
        (3, ((0, 1), (2, 3)), "3 stages were asked for, but 2 layer ranges were given"),
        (None, None, "neither a number of stages nor layer ranges were given"),
    ],
)
def test_wrong_wishes_are_refused_and_nothing_is_written(
    stages: int | None, ranges: tuple[tuple[int, int], ...] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CutRefused) as refused:
        cut_model(whole_ir("llama"), tmp_path, stages=stages, ranges=ranges, on_progress=no_progress)
    assert refused.value.message == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "no model", "<net></net>"])
def test_a_file_that_is_no_model_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.xml"
    path.write_text(content)
    with pytest.raises(SourceError) as refused:
        describe(path)
    assert refused.value.message.startswith("broken.xml cannot be read as an OpenVINO model: ")
    assert "\n" not in refused.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        describe(tmp_path / "absent.xml")


@pytest.mark.slow
def test_a_cut_leaves_the_whole_model_as_it_was(tmp_path: Path) -> None:
    files = (whole_ir("falcon"), whole_ir("falcon").with_suffix(".bin"))
    before = [path.read_bytes() for path in files]
    cut_model(whole_ir("falcon"), tmp_path, stages=4, ranges=None, on_progress=no_progress)
    assert [path.read_bytes() for path in files] == before
