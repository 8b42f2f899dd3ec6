"""Token ids <-> text, from a `tokenizer.json` alone (no transformers: its import takes 0.9 s)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetchat.chat.stream_decoder import ByteStreamDecoder, StreamDecoder, WindowStreamDecoder
from fleetchat.errors import PromptError, ShardDamaged

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


class SpecialMatch(NamedTuple):
    """A special token found in a text, with the white space that it swallows."""

    start: int
    end: int
    token_id: int


class ChatTokenizer:
    """A fast tokenizer. Safe to use from several threads."""

    def __init__(self, definition: str) -> None:
        """`definition` is the content of a `tokenizer.json`. Raises ShardDamaged."""
        from tokenizers import Tokenizer

        try:
            self._tokenizer: Tokenizer = Tokenizer.from_str(definition)
            parts = json.loads(definition)
        except Exception as error:  # the library raises bare Exception
            raise ShardDamaged(f"the tokenizer definition cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._byte_level = (parts.get("decoder") or {}).get("type") == "ByteLevel"
        added = self._tokenizer.get_added_tokens_decoder()
        self._specials = {token.content: (number, token) for number, token in added.items() if token.special}
        self._special_pattern = _alternatives(list(self._specials))
        unknown = (parts.get("model") or {}).get("unk_token")
        self._forbidden = {number for text, (number, _) in self._specials.items() if text != unknown}
        self._start = _added_before(self._tokenizer)
        self._lock = threading.Lock()  # `encode_special_tokens` is a state of the library's object

    @classmethod
    def load(cls, path: Path) -> ChatTokenizer:
        """Read a `tokenizer.json`. Raises ShardDamaged when it is missing or not one."""
        try:
            return cls(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ShardDamaged) as error:
            raise ShardDamaged(
                f"{path} is not a readable tokenizer: {error}",
                hint="`fleetchat shards verify` tells which shards are damaged, and how they are built again",
            ) from error

    def encode(self, text: str, *, specials: bool) -> list[int]:
        """Ids of `text`, nothing added at its ends.

        With `specials` the strings of special tokens become those tokens, without they stay text.
        Raises PromptError for a text that is not Unicode (lone surrogates).
        """
        if specials:
            return list(self._encode(text, as_text=False).ids)
        return self._encode_as_text(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of complete ids, special tokens left out."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def decoder(self) -> StreamDecoder:
        """A decoder for one reply whose ids come one by one."""
        special_ids = frozenset(number for number, _ in self._specials.values())
        if self._byte_level:
            return ByteStreamDecoder(self.token, special_ids)
        return WindowStreamDecoder(self.token, self.decode, special_ids)

    def token(self, token_id: int) -> str | None:
        """The string of a token, None for an id that the tokenizer does not have."""
        string: str | None = self._tokenizer.id_to_token(token_id)
        return string

    def special_id(self, text: str) -> int | None:
        """The id of a special token, None when there is no such one."""
        found = self._specials.get(text)
        return None if found is None else found[0]

    def begun(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """`token_ids` of a text, behind what the tokenizer puts before every text (BOS), which is there once.

        A template may have written it already.
        """
        start = self._start
        return tuple(token_ids) if tuple(token_ids[: len(start)]) == start else (*start, *token_ids)

    def special_matches(self, text: str, start: int = 0, end: int | None = None) -> list[SpecialMatch]:
        """The special tokens whose strings stand in `text[start:end]`, as `encode` finds them.

        The white space that a token swallows may lie outside that part.
        """
        if self._special_pattern is None:
            return []
        found = self._special_pattern.finditer(text, start, len(text) if end is None else end)
        return [self._match(text, place) for place in found]

    def _match(self, text: str, place: re.Match[str]) -> SpecialMatch:
        token_id, token = self._specials[place.group()]
        start, end = place.span()
        if token.lstrip:
            start = len(text[:start].rstrip())
        if token.rstrip:
            end += len(text[end:]) - len(text[end:].lstrip())
        return SpecialMatch(start, end, token_id)

    def _encode(self, text: str, *, as_text: bool) -> Encoding:
        with self._lock:
            self._tokenizer.encode_special_tokens = as_text
            try:
                return self._tokenizer.encode(text, add_special_tokens=False)
            except (TypeError, UnicodeEncodeError) as error:
                raise PromptError("the text is not valid Unicode: it holds half a surrogate pair") from error

    def _encode_as_text(self, text: str) -> list[int]:
        """Ids of `text` with no special token among them.

        A vocabulary may hold the string of a special token as an ordinary entry (unigram models do);
        then the text is cut inside the string, and both parts are encoded apart.
        """
        encoding = self._encode(text, as_text=True)
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id in self._forbidden and end - start > 1:
                return self._encode_as_text(text[: start + 1]) + self._encode_as_text(text[start + 1 :])
        return list(encoding.ids)


def _added_before(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids that a tokenizer puts before any text by itself, as its post-processor says."""
    added = tokenizer.encode("a", add_special_tokens=True)
    bare = len(tokenizer.encode("a", add_special_tokens=False).ids)
    count = len(added.ids) - bare
    leading = [mark for mark, _ in zip(added.special_tokens_mask, range(count), strict=False)]
    return tuple(added.ids[: leading.index(0) if 0 in leading else count])


def _alternatives(strings: list[str]) -> re.Pattern[str] | None:
    """A pattern that finds the leftmost of `strings`, of several there the longest."""
    if not strings:
        return None
    return re.compile("|".join(re.escape(string) for string in sorted(strings, key=len, reverse=True)))
