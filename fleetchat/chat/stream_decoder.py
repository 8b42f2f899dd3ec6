"""Text from token ids that come one by one, never half a character.

The joined text of all `push` calls and of `finish` is what decoding all ids at once gives.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

REPLACEMENT = "\ufffd"  # what broken UTF-8 is shown as


class StreamDecoder(Protocol):
    """Turns the ids of one reply into text."""

    def push(self, token_id: int) -> str:
        """Take one id; return the characters that are complete now."""
        ...

    def finish(self) -> str:
        """Return what was held back; broken UTF-8 comes as U+FFFD."""
        ...


@cache
def byte_of_character() -> dict[str, int]:
    """The bytes behind the printable characters of a byte-level vocabulary.

    GPT-2's table (openai/gpt-2, `encoder.py`, `bytes_to_unicode`): printable Latin-1 stands for
    itself, the other 68 bytes in order for U+0100 and on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return table


def token_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; an added token outside the alphabet is its own UTF-8."""
    table = byte_of_character()
    try:
        return bytes(table[character] for character in token)
    except KeyError:
        return token.encode()


class ByteStreamDecoder:
    """For byte-level vocabularies (GPT-2, Llama 3, Qwen, SmolLM): tokens are runs of bytes."""

    def __init__(self, token_of: Callable[[int], str | None], special_ids: frozenset[int]) -> None:
        self._token_of = token_of
        self._special_ids = special_ids
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        token = None if token_id in self._special_ids else self._token_of(token_id)
        return self._utf8.decode(token_bytes(token)) if token is not None else ""

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class WindowStreamDecoder:
    """For every other vocabulary: decodes a short window of ids with the library.

    The window begins with ids whose text was given already, because a decoder may treat the first
    token differently (it strips a space). Byte tokens (`<0xE2>`) are held back until their run ends:
    one broken byte changes how the whole run is decoded.
    """

    def __init__(
        self,
        token_of: Callable[[int], str | None],
        decode: Callable[[Sequence[int]], str],
        special_ids: frozenset[int],
    ) -> None:
        self._token_of = token_of
        self._decode = decode
        self._special_ids = special_ids
        self._window: list[int] = []
        self._given_ids = 0  # the first ids of the window, and
        self._given_text = ""  # their text

    def push(self, token_id: int) -> str:
        token = None if token_id in self._special_ids else self._token_of(token_id)
        if token is None:
            return ""
        self._window.append(token_id)
        if is_byte_token(token):
            return ""
        text = self._decode(self._window)
        if text.endswith(REPLACEMENT) or not text.startswith(self._given_text):
            return ""
        fresh = text[len(self._given_text) :]
        self._slide()
        return fresh

    def finish(self) -> str:
        return self._decode(self._window)[len(self._given_text) :]

    def _slide(self) -> None:
        """Drop the ids given before; keep those given just now as the context of the next."""
        del self._window[: self._given_ids]
        self._given_ids = len(self._window)
        self._given_text = self._decode(self._window)


def is_byte_token(token: str) -> bool:
    """Whether a token is one byte of a character outside the vocabulary, as `<0xE2>`."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")
