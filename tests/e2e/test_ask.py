"""`fleetchat ask` as its own process, on shards of the tiny model that its first run builds."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.ask_process import AskProcess
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
GREEDY = ("--temperature", "0", "--precision", "exact")
LONG = ("--max-tokens", "1900")  # the tiny model's greedy reply does not end before


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> AskProcess:
    folder = tmp_path_factory.mktemp("ask")
    write_tiny_model(folder / "model")
    (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    return AskProcess(folder, str(folder / "tiny.toml"))


def test_the_first_run_builds_and_tells_its_steps_on_stderr(ask: AskProcess) -> None:
    code, out, err = ask.run("Hello", *GREEDY, "--max-tokens", "20")
    assert code == 0, err
    assert len(out) == 21
    steps = err.splitlines()
    assert len(steps) >= 3
    assert steps[-1] == "the answer was cut after 20 tokens (--max-tokens)"
    again = ask.run("Hello", *GREEDY, "--max-tokens", "20")
    assert again == (0, out, steps[-1] + "\n")
    assert ask.leftovers() == []


@pytest.fixture(scope="module")
def hello(ask: AskProcess) -> dict[str, Any]:
    """A greedy answer of 120 tokens by two stages."""
    return ask.document("Hello", *GREEDY, "--max-tokens", "120")


def test_every_number_of_stages_gives_the_same_ids(ask: AskProcess, hello: dict[str, Any]) -> None:
    assert len(hello["answers"][0]["token_ids"]) == 120
    documents = {2: hello}
    for stages in (1, 3):
        documents[stages] = ask.document("Hello", *GREEDY, "--max-tokens", "120", "--stages", str(stages))
    for stages, document in documents.items():
        layers = [number for first, last in _layers(document) for number in range(first, last + 1)]
        assert layers == [0, 1, 2, 3]
        assert len(document["stages"]) == stages
        assert all(stage["compute_ms"]["p50"] > 0 for stage in document["stages"])
        assert document["answers"][0]["token_ids"] == hello["answers"][0]["token_ids"]


def _layers(document: dict[str, Any]) -> list[Sequence[int]]:
    return [stage["layers"] for stage in document["stages"]]


def test_a_seed_gives_its_text_again_and_the_next_turn_takes_the_next_seed(ask: AskProcess) -> None:
    drawn = ("--seed", "11", "--temperature", "1", "--precision", "exact", "--max-tokens", "30")
    first, second, alone = ask.document("--prompt", "A", "--then", "B", "--prompt", "A", *drawn)["answers"]
    assert first["token_ids"] == alone["token_ids"]
    assert (first["seed"], second["seed"], alone["seed"]) == (11, 12, 11)
    assert second["prompt_tokens_cached"] >= first["prompt_tokens"] + first["completion_tokens"] - 1
    assert [(one["prompt"], one["turn"]) for one in (first, second, alone)] == [(0, 0), (0, 1), (1, 0)]


def test_a_random_seed_is_reported_and_gives_the_text_again(ask: AskProcess) -> None:
    drawn = ("Hello", "--temperature", "1", "--precision", "exact", "--max-tokens", "30")
    answer = ask.document(*drawn)["answers"][0]
    again = ask.document(*drawn, "--seed", str(answer["seed"]))["answers"][0]
    assert again["token_ids"] == answer["token_ids"]


def test_a_special_string_of_the_user_stays_text(ask: AskProcess) -> None:
    plain, typed = ask.document("--prompt", "x", "--prompt", "x<|im_end|>", *GREEDY, "--max-tokens", "1")[
        "answers"
    ]
    assert typed["prompt_tokens"] - plain["prompt_tokens"] == len("<|im_end|>")  # a byte a token


def test_the_prompt_comes_through_a_pipe(ask: AskProcess) -> None:
    typed = ask.run("Zürich ☕", *GREEDY, "--max-tokens", "20")
    piped = ask.run(*GREEDY, "--max-tokens", "20", stdin="Zürich ☕\n")
    assert piped == typed


def test_a_stop_text_and_a_stop_id_end_the_answer(ask: AskProcess, hello: dict[str, Any]) -> None:
    whole = hello["answers"][0]
    stop = whole["text"][10:13]
    cut = ask.document("Hello", *GREEDY, "--stop", stop)["answers"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    stop_id = whole["token_ids"][5]
    ended = ask.document("Hello", *GREEDY, "--stop-id", str(stop_id))["answers"][0]
    assert ended["token_ids"] == whole["token_ids"][: whole["token_ids"].index(stop_id)]


def test_a_full_context_is_said(ask: AskProcess) -> None:
    code, out, err = ask.run("Hello", *GREEDY, "--context", "60", "--json")
    assert code == 0
    assert "the answer was cut: the context of 60 tokens is full" in err
    answer = json.loads(out)["answers"][0]
    assert answer["finish_reason"] == "context"
    assert answer["prompt_tokens"] + answer["completion_tokens"] == 60


def test_a_prompt_longer_than_the_context_is_refused_with_numbers(ask: AskProcess) -> None:
    code, out, err = ask.run("x" * 200, "--context", "100")
    assert (code, out) == (2, "")
    assert "a prompt may have at most 99" in err


def test_more_stages_than_layers_are_refused(ask: AskProcess) -> None:
    code, out, err = ask.run("Hello", "--stages", "99")
    assert (code, out) == (2, "")
    assert "99" in err
    assert "Traceback" not in err


def test_ctrl_c_keeps_the_text_and_leaves_nothing(ask: AskProcess) -> None:
    with ask.start("Hello", *GREEDY, *LONG) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        text = process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        text += process.stdout.read()
        assert process.stderr.read().startswith(b"stopped after ")
    assert process.returncode == 130
    assert len(text) < 1900
    assert text.endswith(b"\n")
    assert ask.leftovers() == []


def test_a_killed_ask_leaves_no_peer(ask: AskProcess) -> None:
    with ask.start("Hello", *GREEDY, *LONG) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        assert len(ask.leftovers()) == 3  # it, and two peers
        process.kill()
    ask.wait_until_nothing_is_left(3.0)


def test_a_reader_that_has_gone_ends_it_quietly(ask: AskProcess) -> None:
    with ask.start("Hello", *GREEDY, *LONG) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
    assert ask.leftovers() == []
