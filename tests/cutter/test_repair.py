"""Does a repaired model compute what its GGUF says; is what cannot be repaired refused."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from gguf import GGMLQuantizationType
from openvino import opset13

from fleetchat.cutter import repair as subject
from fleetchat.cutter.convert import convert_gguf
from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.cutter.repair import WeightReport, repair, unpermuted
from fleetchat.cutter.weights import Expression, captured, evaluate, matrices
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.errors import BuildError, SourceError
from tests.cutter.tiny_gguf import FEED_FORWARD, HEADS, HIDDEN, KV_HEADS, LAYERS, write_gguf

CORE = ov.Core()
EXACT = openvino_config(Precision.EXACT, 1)
IDS = np.random.default_rng(1).integers(0, 256, 40)


@pytest.fixture(scope="module")
def converted(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The IR as the converter leaves it."""
    return convert_gguf(tiny_gguf, tmp_path_factory.mktemp("converted"))


def repaired(converted: Path, gguf: Path) -> tuple[ov.Model, WeightReport]:
    model = CORE.read_model(converted)
    with GgufFile(gguf) as file:
        return model, repair(model, file, lambda done, total: None)


def logits(model: ov.Model) -> np.ndarray:
    request = CORE.compile_model(model, "CPU", EXACT).create_infer_request()
    rows = len(IDS)
    inputs = {
        "input_ids": IDS[np.newaxis],
        "attention_mask": np.ones((1, rows), np.int64),
        "position_ids": np.arange(rows)[np.newaxis],
        "beam_idx": np.zeros(1, np.int32),
    }
    return np.array(request.infer(inputs)[0])


def with_true_weights(converted: Path, gguf: Path) -> ov.Model:
    """The same graph with every linear weight replaced by the GGUF's own values, by graph order and name."""
    model = CORE.read_model(converted)
    with GgufFile(gguf) as file:
        pending = {name: file.dequantised(name) for name, one in file.tensors.items() if len(one.shape) == 2}
    heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}
    for name, values in pending.items():
        count = heads.get(name.split(".", 2)[-1])
        true = unpermuted(values, count) if count else values
        matrix = min(
            (one for one in matrices(model) if one.shape == true.shape),
            key=lambda one: float(np.abs(evaluate(captured(one.output)) - true).sum()),
        )
        constant = opset13.constant(true, shared_memory=False)
        for reader in list(matrix.output.get_target_inputs()):
            reader.replace_source_output(constant.output(0))
    return model


@pytest.mark.slow
def test_the_converter_damages_q4_1_and_the_repair_is_exact(converted: Path, tiny_gguf: Path) -> None:
    truth = logits(with_true_weights(converted, tiny_gguf))
    damaged = logits(CORE.read_model(converted))
    model, report = repaired(converted, tiny_gguf)
    mended = logits(model)
    assert np.abs(damaged - truth).max() > 0.1
    assert np.abs(mended - truth).max() < 1e-4
    assert report.repaired == 7 * LAYERS
    assert report.error_before > 0.05
    assert report.error_after < 0.001
    assert len(report.layers) == 7 * LAYERS + 1


@pytest.mark.slow
def test_the_repair_stays_in_the_saved_model(converted: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    model, _ = repaired(converted, tiny_gguf)
    expected = logits(model)
    ov.save_model(model, tmp_path / "saved.xml", compress_to_fp16=False)
    np.testing.assert_array_equal(logits(CORE.read_model(tmp_path / "saved.xml")), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0])
def test_what_the_converter_does_right_is_left_alone(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "right.gguf", kind=kind)
    model, report = repaired(convert_gguf(gguf, tmp_path), gguf)
    assert report.repaired == 0
    assert report.error_after == report.error_before < 0.001
    assert not [node for node in model.get_ops() if node.get_friendly_name().endswith("/repaired")]


@pytest.mark.slow
def test_progress_counts_all_matrices(converted: Path, tiny_gguf: Path) -> None:
    seen: list[tuple[int, int]] = []
    with GgufFile(tiny_gguf) as file:
        repair(CORE.read_model(converted), file, lambda done, total: seen.append((done, total)))
    total = 7 * LAYERS + 1
    assert seen == [(done, total) for done in range(1, total + 1)]


@pytest.mark.slow
def test_a_model_of_another_gguf_is_refused(converted: Path, tmp_path: Path) -> None:
    stranger = write_gguf(tmp_path / "stranger.gguf", seed=5)
    with pytest.raises(
        SourceError, match=r"stranger\.gguf: the converter made a \d+x\d+ weight that is none"
    ):
        repaired(converted, stranger)


@pytest.mark.slow
def test_a_weight_that_is_lost_is_refused(converted: Path, tiny_gguf: Path) -> None:
    model = CORE.read_model(converted)
    first, second = [one for one in matrices(model) if one.shape == (FEED_FORWARD, HIDDEN)][:2]
    for reader in list(second.output.get_target_inputs()):
        reader.replace_source_output(first.output)
    with GgufFile(tiny_gguf) as file, pytest.raises(SourceError, match=r"the converter lost blk\.\d\.ffn_"):
        repair(model, file, lambda done, total: None)


@pytest.mark.slow
def test_a_changed_norm_is_refused(converted: Path, tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as file:
        norm = file.dequantised("blk.1.attn_norm.weight")
        model = CORE.read_model(converted)
        constant = next(
            node
            for node in model.get_ops()
            if node.get_type_name() == "Constant"
            and node.data.size == norm.size
            and np.array_equal(np.asarray(node.data).reshape(-1), norm)
        )
        changed = opset13.constant((constant.data * 1.5).astype(np.float32))
        for reader in list(constant.output(0).get_target_inputs()):
            reader.replace_source_output(changed.output(0))
        with pytest.raises(SourceError, match=r"the converter changed blk\.1\.attn_norm\.weight"):
            repair(model, file, lambda done, total: None)


@pytest.mark.slow
def test_damage_of_another_kind_is_refused_with_numbers(
    converted: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)

    def noisy(expression: Expression) -> np.ndarray:
        values = evaluate(expression)
        return values + random.normal(0, 0.05, values.shape).astype(np.float32)

    monkeypatch.setattr(subject, "evaluate", noisy)
    with pytest.raises(BuildError) as raised:
        repaired(converted, tiny_gguf)
    assert "mean error" in raised.value.message
    assert raised.value.message.endswith("after repair, at most 1% is accepted")


@pytest.mark.slow
def test_openvinos_objects_are_read_in_the_main_thread_only(
    converted: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that are the first to look at a constant's values stop for ever."""
    seen: list[threading.Thread] = []

    def noting(output: object) -> Expression:
        seen.append(threading.current_thread())
        return captured(output)

    monkeypatch.setattr(subject, "captured", noting)
    repaired(converted, tiny_gguf)
    assert len(seen) == 7 * LAYERS + 1
    assert set(seen) == {threading.main_thread()}


def test_rows_of_a_head_become_two_halves() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert unpermuted(rows, 2).reshape(-1).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.slow
def test_the_default_model_reads_english_better_after_the_repair(
    default_whole_ir: Path, default_whole: Path
) -> None:
    """Mean negative log-likelihood a token: 3.70 as converted, 3.43 repaired."""
    from tokenizers import Tokenizer

    text = (
        "The harbour town wakes long before the sun is up. Fishing boats come back through the narrow "
        "channel with their lamps still burning, and the men on deck call out the night's catch to the "
        "buyers who wait on the quay. By seven o'clock most of the fish has been sold, packed in ice and "
        "loaded onto trucks that will carry it to the markets of the capital. Then the cafes open, and "
        "the same people who shouted at each other an hour ago sit down together to drink coffee and "
        "complain about the weather, the price of diesel and the new rules from the ministry. Visitors "
        "often believe that life here has not changed for a hundred years, but that is not true. The old "
        "sail makers are gone, and the building where they worked is now a small museum with a good "
        "collection of maps. Young people study in the city and come back only for the summer, although a "
        "few of them have started businesses that repair engines or rent boats to tourists. The town is "
        "neither rich nor poor. It has a school, a doctor, two churches and a library that is open on "
        "Tuesdays, and everybody knows when the last bus leaves for the station."
    )
    ids = np.array(Tokenizer.from_file(str(default_whole / "tokenizer.json")).encode(text).ids)
    request = CORE.compile_model(default_whole_ir, "CPU", EXACT).create_infer_request()
    inputs = {
        "input_ids": ids[np.newaxis],
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[np.newaxis],
        "beam_idx": np.zeros(1, np.int32),
    }
    found = np.array(request.infer(inputs)[0][0], dtype=np.float64)
    found -= np.log(np.exp(found - found.max(1, keepdims=True)).sum(1, keepdims=True)) + found.max(
        1, keepdims=True
    )
    assert -found[np.arange(len(ids) - 1), ids[1:]].mean() == pytest.approx(3.431, abs=0.02)
