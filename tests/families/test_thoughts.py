"""A model that thinks aloud, asked twice through `fleetchat ask`: what the second turn is read from.

The model is the tiny Qwen3 with random weights. One of the tokens that it draws is given the name `</think>`,
so that its first reply is a thought and an answer. The template is in Qwen3's style: thoughts are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fleetchat.cli.main import main
from fleetchat.cutter.trial import Trial
from tests.cutter.fixture_models import compiled, whole_ir
from tests.families.cases import CASES, USER, write_folder, write_tokenizer
from tests.families.styles import TEMPLATES

pytestmark = pytest.mark.slow

TOKENS, THEN = 12, "And what then"
CASE = next(case for case in CASES if case.name == "qwen3")
RECIPE = 'context = 256\n[source]\nkind = "path"\npath = "exported"\n'


def ids_of(text: str) -> list[int]:
    """Bytes and the ChatML tokens."""
    token_ids: list[int] = []
    for part in re.split("(" + "|".join(map(re.escape, CASE.specials)) + ")", text):
        token_ids += CASE.ids_of((part,)) if part in CASE.specials else part.encode()
    return token_ids


def greedy(prompt: Sequence[int]) -> list[int]:
    trial, drawn, rows = Trial([compiled(whole_ir("qwen3"))]), [], list(prompt)
    for _ in range(TOKENS):
        drawn.append(int(trial.feed(np.array(rows))[-1].argmax()))
        rows = drawn[-1:]
    return drawn


@pytest.mark.parametrize("engine", ["masked", "paged"])
def test_the_second_turn_is_read_without_the_thought_of_the_first(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ids_of(f"<|im_start|>user\n{USER}<|im_end|>\n<|im_start|>assistant\n")
    reply = greedy(first)
    asked = ids_of(f"<|im_end|>\n<|im_start|>user\n{THEN}<|im_end|>\n<|im_start|>assistant\n")
    usual = {*first, *asked}
    place = next(
        place
        for place in range(1, TOKENS - 1)
        if reply[place] not in {*usual, *reply[:place]} and not chr(reply[place + 1]).isspace()
    )
    answer = reply[place + 1 :]
    second = [*first, *answer, *asked]
    folder = write_folder(CASE, tmp_path / "exported")
    (folder / "chat_template.jinja").write_text((TEMPLATES / "qwen3.jinja").read_text(), encoding="utf-8")
    write_tokenizer(folder / "tokenizer.json", CASE.specials)
    name_token(folder / "tokenizer.json", reply[place], "</think>")
    recipe = tmp_path / "thinking.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", str(tmp_path / "cache"))
    settings = ["--precision", "exact", "--temperature", "0", "--max-tokens", str(TOKENS), "--kv", engine]
    code = main(["ask", USER, "--then", THEN, "--recipe", str(recipe), *settings, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    one, two = json.loads(out)["answers"]
    assert one["token_ids"] == reply
    assert two["prompt_tokens"] == len(second)
    assert two["token_ids"] == greedy(second)
    assert two["prompt_tokens_cached"] == len(first) + (answer[0] == reply[0])


def name_token(path: Path, token_id: int, name: str) -> None:
    """Give an id that no text needs another name, as an added token that is not special, as Qwen3's are."""
    definition = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = definition["model"]["vocab"]
    character = next(one for one, number in vocabulary.items() if number == token_id)
    del vocabulary[character]
    vocabulary[name] = token_id
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    definition["added_tokens"].append({"id": token_id, "content": name, **usual})
    definition["added_tokens"].sort(key=lambda one: one["id"])
    path.write_text(json.dumps(definition), encoding="utf-8")
