"""Vocabularies are compared by content, and a message names the first token that differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetchat.errors import InputError
from fleetchat.fleet.draft.vocabulary import require_same_vocabulary, token_texts

TOKENS = {"a": 0, "b": 1, "é\n": 2}


def definition(vocabulary: object, added: Mapping[str, int] | None = None) -> str:
    tokens = [{"id": token_id, "content": text} for text, token_id in (added or {}).items()]
    return json.dumps({"model": {"vocab": vocabulary}, "added_tokens": tokens})


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    return path


def compare(folder: Path, target: str, draft: str) -> None:
    require_same_vocabulary(
        written(folder, "target", target),
        written(folder, "draft", draft),
        target_name="Large",
        draft_name="Small",
    )


def test_added_tokens_count_and_win() -> None:
    assert token_texts(definition(TOKENS, {"<|end|>": 3, "B": 1})) == {0: "a", 1: "B", 2: "é\n", 3: "<|end|>"}


def test_a_unigram_vocabulary_is_a_list() -> None:
    assert token_texts(definition([["a", -1.0], ["b", -2.0]])) == {0: "a", 1: "b"}


def test_the_same_tokens_pass_in_any_order(tmp_path: Path) -> None:
    compare(tmp_path, definition(TOKENS), definition(dict(reversed(TOKENS.items()))))


def test_a_draft_padded_to_a_larger_size_passes(tmp_path: Path) -> None:
    compare(tmp_path, definition(TOKENS), definition(TOKENS, {"<extra>": 3}))


@pytest.mark.parametrize(
    ("draft", "first"),
    [
        ({"a": 0, "c": 1, "x": 2}, "token 1 is 'b' in Large, 'c' in Small"),
        ({"a": 0, "b": 1}, r"token 2 is '\xe9\n' in Large, missing in Small"),
    ],
)
def test_the_first_difference_is_named(draft: dict[str, int], first: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        compare(tmp_path, definition(TOKENS), definition(draft))
    assert caught.value.message == f"the draft model Small has another vocabulary than Large: {first}"
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": {"vocab": 3}}', '{"model": {"vocab": {"a": "x"}}}']
)
def test_what_is_no_tokenizer_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"draft\.json is not the tokenizer\.json of Small"):
        compare(tmp_path, definition(TOKENS), text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    target = written(tmp_path, "target", definition(TOKENS))
    with pytest.raises(InputError, match="the vocabulary of Small cannot be read") as caught:
        require_same_vocabulary(target, tmp_path / "no.json", target_name="Large", draft_name="Small")
    assert "tokenizer.json" in (caught.value.hint or "")
