from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.chat.stream_decoder import is_byte_token, token_bytes
from fleetchat.chat.tokenizer import ChatTokenizer
from tests.fakes.small_tokenizers import byte_fallback, byte_level

BYTE_LEVEL = ChatTokenizer(byte_level())
BYTE_FALLBACK = ChatTokenizer(byte_fallback())
TOKENIZERS = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["bytes", "fallback"])

AWKWARD = [
    "",
    "2024-01-31 1,234,567.89",
    "a  b   c      d\n\n\n  e",
    "👩‍👩‍👧‍👦 👍🏽 🇫🇷 ❤️",
    "你好，世界。こんにちは 안녕하세요",
    "مرحبا بالعالم لا إله",
    "नमस्ते दुनिया क्ष",
    "line\u2028separator\u0085and\x0cfeed",
    "e\u0301 cafe\u0301 ﬁ",
    "\ufffd\ufffd real replacement \ufffd",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
]


def streamed(tokenizer: ChatTokenizer, token_ids: list[int]) -> list[str]:
    decoder = tokenizer.decoder()
    return [*(decoder.push(token_id) for token_id in token_ids), decoder.finish()]


@TOKENIZERS
@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_comes_back_whole_and_never_half_a_character(
    tokenizer: ChatTokenizer, text: str
) -> None:
    token_ids = tokenizer.encode(text, specials=False)
    pieces = streamed(tokenizer, token_ids)
    assert "".join(pieces) == tokenizer.decode(token_ids) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@TOKENIZERS
@settings(max_examples=150)
@given(text=st.text())
def test_any_text_comes_back(tokenizer: ChatTokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, specials=False)
    assert "".join(streamed(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@TOKENIZERS
@settings(max_examples=150)
@given(token_ids=st.lists(st.integers(0, 440) | st.integers(120, 260), max_size=20))
def test_any_ids_give_what_decoding_at_once_gives(tokenizer: ChatTokenizer, token_ids: list[int]) -> None:
    assert "".join(streamed(tokenizer, token_ids)) == tokenizer.decode(token_ids)


def test_half_a_character_is_held_back_until_it_is_whole() -> None:
    token_ids = [id_of_byte(byte) for byte in "é".encode()]
    assert streamed(BYTE_LEVEL, token_ids) == ["", "é", ""]


def test_a_broken_character_is_replaced_at_the_end_only() -> None:
    assert streamed(BYTE_LEVEL, [id_of_byte(0xF0), id_of_byte(0x9F)]) == ["", "", "\ufffd"]


def test_a_special_token_gives_no_text_and_tears_no_character() -> None:
    end = BYTE_LEVEL.encode("<|im_end|>", specials=True)
    first, second = (id_of_byte(byte) for byte in "é".encode())
    assert streamed(BYTE_LEVEL, [first, *end, second]) == ["", "", "é", ""]


def test_an_added_token_that_is_not_special_is_text() -> None:
    assert "".join(streamed(BYTE_LEVEL, BYTE_LEVEL.encode("<think>so", specials=True))) == "<think>so"


def test_an_id_outside_the_vocabulary_gives_no_text() -> None:
    assert streamed(BYTE_LEVEL, [49_999]) == ["", ""]


def test_the_window_does_not_grow_with_the_reply() -> None:
    decoder = BYTE_FALLBACK.decoder()
    for token_id in BYTE_FALLBACK.encode("The Paris is The " * 50, specials=False):
        decoder.push(token_id)
        assert len(decoder._window) <= 2  # type: ignore[attr-defined]


def test_bytes_of_tokens() -> None:
    assert token_bytes("Ġthe") == b" the"
    assert token_bytes("Ċ") == b"\n"
    assert token_bytes("a b") == b"a b"
    assert is_byte_token("<0x0A>")
    assert not is_byte_token("<0x0A")


def id_of_byte(byte: int) -> int:
    """The id of a single byte in the byte-level vocabulary."""
    return next(
        number for number in range(3, 260) if token_bytes(BYTE_LEVEL.token(number) or "") == bytes([byte])
    )
