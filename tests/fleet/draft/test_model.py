"""A draft model in OpenVINO: whole exports and one-stage builds, rollback, compaction, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray

from fleetchat.engine.interface import EngineSlice
from fleetchat.engine.masked import MaskedEngine
from fleetchat.errors import InputError
from fleetchat.fleet.draft.model import DraftModel, model_name
from fleetchat.fleet.draft.model_drafter import load_model_drafter
from fleetchat.ids import SessionKey
from fleetchat.wire.frames import Draw
from tests.engine.conformance import PROMPT, session
from tests.tiny_model import TinyShape, write_tiny_model, write_tiny_stage

pytestmark = pytest.mark.slow
SHAPE = TinyShape()
FIXTURES = Path(__file__).parents[2] / "fixtures"
KEY: SessionKey = session(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draft") / "tiny"
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> DraftModel:
    return DraftModel(folder, precision="exact", threads=1)


@pytest.fixture(scope="module")
def engine(folder: Path) -> MaskedEngine:
    return MaskedEngine(
        write_tiny_stage(folder / "stage_0.xml"),
        first_stage=True,
        last_stage=True,
        hidden=SHAPE.hidden,
        vocabulary=SHAPE.vocabulary,
        precision="exact",
        threads=1,
        context=512,
        kv_values_per_cell=SHAPE.layers * SHAPE.kv_values_per_layer,
        cells=4096,
    )


def last_logits(engine: MaskedEngine, ids: list[int]) -> NDArray[np.float32]:
    """Of the engine, from scratch."""
    engine.forget(KEY)
    output = engine.run([EngineSlice(KEY, 0, np.array(ids, dtype=np.int32), None, 1)])[0]
    assert output.fault is None
    return output.rows[-1].copy()


def assert_same(found: NDArray[np.float32] | None, expected: NDArray[np.float32]) -> None:
    assert found is not None
    assert float(np.abs(found - expected).max()) < 1e-4


def test_a_whole_export_gives_the_last_row_only(model: DraftModel, engine: MaskedEngine) -> None:
    assert model.rows_at_once == 512
    assert_same(model.new_cache().feed(PROMPT), last_logits(engine, PROMPT))


def test_a_build_of_one_stage_gives_the_same(folder: Path, engine: MaskedEngine) -> None:
    stage = DraftModel(write_tiny_stage(folder / "one.xml"), precision="exact", threads=1)
    assert "logit_rows" in stage.inputs
    assert_same(stage.new_cache().feed(PROMPT), last_logits(engine, PROMPT))


@pytest.mark.parametrize("family", ["llama", "qwen3", "falcon", "mistral"])
def test_exports_of_other_families_run(family: str) -> None:
    model = DraftModel(FIXTURES / family, precision="exact", threads=1)
    assert model.rows_at_once == 512
    one, two = model.new_cache(), model.new_cache()
    two.feed([1, 2, 3])
    for token in ([1], [2], [3]):
        one.feed(token)
    again = one.feed([4])
    assert again is not None
    assert_same(two.feed([4]), again.copy())


def test_caches_go_on_and_roll_back_apart(model: DraftModel, engine: MaskedEngine) -> None:
    one, two = model.new_cache(), model.new_cache()
    one.feed(PROMPT)
    two.feed([7, 7, 7])
    one.feed([5, 6, 7])
    one.truncate(len(PROMPT) + 1)
    assert one.length == len(PROMPT) + 1
    assert_same(one.feed([9, 8]), last_logits(engine, [*PROMPT, 5, 9, 8]))
    assert_same(two.feed([8]), last_logits(engine, [7, 7, 7, 8]))


def test_many_rejected_drafts_are_compacted_away(model: DraftModel, engine: MaskedEngine) -> None:
    cache = model.new_cache()
    ids = list(PROMPT)
    cache.feed(ids)
    largest = 0
    for number in range(40):
        cache.feed([number] * 7)
        cache.truncate(len(ids))
        largest = max(largest, cache.physical)
    assert largest == len(ids) + 126  # 18 times 7; one more would pass 128
    assert_same(cache.feed([3]), last_logits(engine, [*ids, 3]))


def test_an_emptied_cache_starts_again(model: DraftModel, engine: MaskedEngine) -> None:
    cache = model.new_cache()
    cache.feed([1, 2, 3])
    cache.truncate(0)
    assert cache.physical == 0
    assert_same(cache.feed(PROMPT), last_logits(engine, PROMPT))


def test_the_model_as_its_own_draft_is_always_right(folder: Path, engine: MaskedEngine) -> None:
    drafter = load_model_drafter(
        folder,
        tokenizer=folder / "tokenizer.json",
        target_name="tiny",
        vocabulary=SHAPE.vocabulary,
        precision="exact",
        threads=1,
    )
    draw = Draw(0.0, 1.0, 0, 1.0, 0, len(PROMPT))
    drafts = drafter.propose(1, PROMPT, lambda key: 6, draw).ids
    ids = list(PROMPT)
    for draft in drafts:
        assert draft == int(last_logits(engine, ids).argmax())
        ids.append(draft)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no draft model at .*openvino_model\.xml"):
        DraftModel(tmp_path, precision="exact", threads=1)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("<net", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be loaded"):
        DraftModel(tmp_path, precision="exact", threads=1)


def test_a_later_stage_is_no_draft(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the inputs .*inputs_embeds"):
        DraftModel(write_tiny_stage(tmp_path / "last.xml", 2, 3), precision="exact", threads=1)


def test_a_model_without_a_cache_is_no_draft(tmp_path: Path) -> None:
    from openvino import opset13 as op

    ids = op.parameter([-1, -1], np.int64, name="input_ids")
    mask = op.parameter([-1, -1], np.int64, name="attention_mask")
    both = op.add(op.convert(ids, "f32"), op.reduce_sum(op.convert(mask, "f32"), np.array([1]), True))
    result = op.result(op.unsqueeze(both, np.array([2], dtype=np.int64)))
    network = ov.Model([result], [ids, mask], "flat")
    for parameter in (ids, mask):
        parameter.output(0).set_names({parameter.get_friendly_name()})
    ov.save_model(network, tmp_path / "openvino_model.xml", compress_to_fp16=False)
    with pytest.raises(InputError, match="keeps no cache in its state"):
        DraftModel(tmp_path, precision="exact", threads=1)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/draft-2l", "draft-2l"),
        ("a/b.1/openvino_model.xml", "b.1"),
        ("a/stage_0.xml", "stage_0"),
        ("a/v1.5", "v1.5"),
    ],
)
def test_the_name_of_a_model(path: str, name: str) -> None:
    assert model_name(Path(path)) == name
