"""`fleetchat ask` with the model that people get: right answers, and the same ones however it is cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from fleetchat.chat.conversation import ChatFormat, Conversation
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.recipe import find_recipe
from fleetchat.cutter.store import Store
from fleetchat.engine.precision import openvino_config
from tests.e2e.ask_process import AskProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXACT = ("--temperature", "0", "--repetition-penalty", "1", "--precision", "exact")
STORY = "Write a short story about a lighthouse keeper and a storm."
TOKENS = 120


@pytest.fixture(scope="module")
def ask(
    default_store: Store, default_build: Manifest, tmp_path_factory: pytest.TempPathFactory
) -> AskProcess:
    """On a copy of the store that holds the default build, so that other cuts do not stay in it."""
    folder = tmp_path_factory.mktemp("ask")
    unwanted = shutil.ignore_patterns("temporary", "*.lock")
    shutil.copytree(default_store.root, folder / "CACHE" / "shards", ignore=unwanted, copy_function=_link)
    return AskProcess(folder, default_build.recipe)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another filesystem
        shutil.copyfile(source, target)


@pytest.fixture(scope="module")
def whole_model_ids(default_store: Store, default_build: Manifest, default_whole_ir: Path) -> list[int]:
    """Greedy decoding of the uncut model, driven through OpenVINO without any of the chain."""
    folder = default_store.folder(default_build.build_key)
    chat_format = ChatFormat.load(
        folder / default_build.tokenizer.name,
        folder / default_build.template.name,
        bos_id=default_build.bos_id,
        stop_ids=default_build.stop_ids,
    )
    system = find_recipe(default_build.recipe).system
    prompt_ids = Conversation(chat_format, context=2048, system=system).ask(STORY)
    request = (
        ov.Core().compile_model(default_whole_ir, "CPU", openvino_config("exact", 1)).create_infer_request()
    )
    rows, reply = list(prompt_ids), []
    while len(reply) < TOKENS:
        first = len(prompt_ids) + len(reply) - len(rows)
        logits = request.infer(
            {
                "input_ids": np.array([rows], np.int64),
                "attention_mask": np.ones((1, first + len(rows)), np.int64),
                "position_ids": np.arange(first, first + len(rows), dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )["logits"]
        token = int(logits[0, -1].argmax())
        if token in default_build.stop_ids:
            break
        reply.append(token)
        rows = [token]
    return reply


def test_the_capital_of_france(ask: AskProcess) -> None:
    document = ask.document("What is the capital of France?", *EXACT)
    answer = document["answers"][0]
    assert answer["text"] == "The capital of France is Paris."
    assert answer["finish_reason"] == "stop"
    assert [stage["layers"] for stage in document["stages"]] == [[0, 17], [18, 29]]
    for stage in document["stages"]:
        assert all(stage[times]["p50"] > 0 for times in ("compute_ms", "queue_ms", "network_ms"))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_a_long_answer_is_that_of_the_uncut_model(
    ask: AskProcess, whole_model_ids: list[int], stages: int
) -> None:
    answer = ask.document(STORY, *EXACT, "--max-tokens", str(TOKENS), "--stages", str(stages))["answers"][0]
    assert len(whole_model_ids) == TOKENS
    assert answer["token_ids"] == whole_model_ids


def test_the_second_turn_finds_the_first_in_the_cells(ask: AskProcess) -> None:
    two_turns = ("--prompt", "What is the capital of France?", "--then", "And of Italy?")
    first, second = ask.document(*two_turns, *EXACT, "--max-tokens", "40")["answers"]
    held = first["prompt_tokens"] + first["completion_tokens"]
    assert second["prompt_tokens_cached"] >= held - 1
    assert second["prompt_tokens"] > held
    assert "Rome" in second["text"]


def test_tabs_that_share_a_pass_say_what_each_says_alone(ask: AskProcess) -> None:
    """Paged: three conversations at once, drafts and a next turn; masked: one after the other."""
    prompts = ("Name three colours.", "What is the capital of Italy?", "Write a sentence about the sea.")
    together = [part for prompt in prompts for part in ("--prompt", prompt, "--then", "And again?")]
    paged = ask.document(*together, *EXACT, "--max-tokens", "30", "--kv", "paged", "--drafter", "ngram")
    assert paged["kv"] == "paged"
    assert all(answer["speculation"]["cells_dead"] == [0, 0] for answer in paged["answers"])
    masked = ask.document(*together, *EXACT, "--max-tokens", "30", "--kv", "masked", "--drafter", "none")
    assert masked["kv"] == "masked"
    assert [answer["token_ids"] for answer in paged["answers"]] == [
        answer["token_ids"] for answer in masked["answers"]
    ]
