from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError, ShardDamaged
from tests.fakes.small_tokenizers import byte_level, swallowing, unigram


@pytest.fixture
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(byte_level())


def test_special_tokens_are_parsed_or_stay_text(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.encode("<|im_end|>", specials=True) == [2]
    as_text = tokenizer.encode("<|im_end|>", specials=False)
    assert len(as_text) > 1
    assert 2 not in as_text
    assert tokenizer.decode(as_text) == "<|im_end|>"


def test_both_ways_are_the_same_without_a_special_token(tokenizer: ChatTokenizer) -> None:
    text = "naïve  2024 <|im_end|"
    assert tokenizer.encode(text, specials=True) == tokenizer.encode(text, specials=False)


def test_decoding_leaves_special_tokens_out(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b", specials=True)) == "ab"


def test_a_special_token_that_the_vocabulary_reaches_by_itself_stays_text() -> None:
    tokenizer = ChatTokenizer(unigram())
    as_text = tokenizer.encode("a</s>b</s>", specials=False)
    assert 1 not in as_text
    assert tokenizer.decode(as_text) == "a</s>b</s>"


def test_padding_and_truncation_of_the_file_are_ignored() -> None:
    definition = Tokenizer.from_str(byte_level())
    definition.enable_truncation(max_length=3)
    definition.enable_padding(length=64)
    loaded = ChatTokenizer(definition.to_str())
    assert loaded.encode("The capital of France", specials=False) == ChatTokenizer(byte_level()).encode(
        "The capital of France", specials=False
    )


@pytest.mark.parametrize("definition", [byte_level(), swallowing()])
@settings(max_examples=100)
@given(
    text=st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<|im_", "end|>", " ", "\n", "a"])).map(
        "".join
    )
)
def test_matches_are_those_that_the_library_finds(definition: str, text: str) -> None:
    tokenizer = ChatTokenizer(definition)
    found = [match.token_id for match in tokenizer.special_matches(text)]
    assert found == [token_id for token_id in tokenizer.encode(text, specials=True) if token_id <= 2]


def test_half_a_surrogate_pair_is_refused(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(PromptError, match="surrogate"):
        tokenizer.encode("broken \udce9", specials=True)


@pytest.mark.parametrize("content", [b"{", b"{}", b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ShardDamaged, match=r"tokenizer\.json is not a readable tokenizer"):
        ChatTokenizer.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardDamaged, match=r"tokenizer\.json is not a readable tokenizer"):
        ChatTokenizer.load(tmp_path / "tokenizer.json")
