"""Chat templates in the styles of the families, written for the tests: their constructs, not their texts.

The vocabulary is that of bytes: a byte is its own id, and the style's special tokens take ids from 0xF5 on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from tests.tiny_model import byte_characters

FIRST_SPECIAL = 0xF5  # this byte and those above it are in no UTF-8 text
NOW = datetime(2031, 5, 4)
TEMPLATES = Path(__file__).parent / "templates"

_HEADERS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKS = ("<think>", "</think>")


@dataclass(frozen=True)
class Style:
    """A template with its tokens; `ordinary` are added tokens that are not special.

    `bos` and `eos` are what the template gets under these names; `adds_bos`: the tokenizer adds it to a text.
    """

    name: str
    specials: tuple[str, ...]
    ordinary: tuple[str, ...] = ()
    bos: str | None = None
    eos: str | None = None
    adds_bos: bool = False
    changed: str | None = None  # another template's text

    @property
    def source(self) -> str:
        return self.changed or (TEMPLATES / f"{self.name}.jinja").read_text(encoding="utf-8")

    @property
    def template(self) -> ChatTemplate:
        named = {"bos_token": self.bos, "eos_token": self.eos}
        tokens = {name: token for name, token in named.items() if token is not None}
        return ChatTemplate(self.source, tokens=tokens, now=NOW)

    @property
    def tokenizer(self) -> ChatTokenizer:
        return ChatTokenizer(self.definition)

    @property
    def definition(self) -> str:
        vocabulary = {character: byte for byte, character in enumerate(byte_characters()[:FIRST_SPECIAL])}
        vocabulary |= {text: FIRST_SPECIAL + place for place, text in enumerate(self.tokens)}
        tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in self.specials])
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in self.ordinary])
        if self.adds_bos and self.bos is not None:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=[self.bos, "$A"], special_tokens=[(self.bos, self.id_of(self.bos))]
            )
        return str(tokenizer.to_str())

    @property
    def tokens(self) -> tuple[str, ...]:
        return (*self.specials, *self.ordinary)

    def id_of(self, token: str) -> int:
        return FIRST_SPECIAL + self.tokens.index(token)

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, without any tokenizer: bytes and the style's tokens."""
        parts = re.split("(" + "|".join(map(re.escape, self.tokens)) + ")", text)
        spelled = [
            [self.id_of(part)] if part in self.tokens else list(part.encode()) for part in parts if part
        ]
        return tuple(token for part in spelled for token in part)


STYLES = {
    "llama3": Style("llama3", _HEADERS, bos="<|begin_of_text|>", eos="<|eot_id|>", adds_bos=True),
    "qwen3": Style("qwen3", _IM, _MARKS, eos="<|im_end|>"),
    "mistral": Style(
        "mistral", ("<s>", "</s>", "[INST]", "[/INST]"), bos="<s>", eos="</s>", adds_bos=True
    ),
    "gemma": Style(
        "gemma", ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>", eos="<eos>", adds_bos=True,
    ),
    "phi": Style(
        "phi", ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"), eos="<|endoftext|>"
    ),
    "harmony": Style(
        "harmony",
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"),
        eos="<|return|>",
    ),
    "smollm3": Style("smollm3", _IM, _MARKS, eos="<|im_end|>"),
    "opened": Style(
        "opened", ("<|begin|>", "<|end_of_sentence|>", "<|User|>", "<|Assistant|>"), _MARKS,
        bos="<|begin|>", eos="<|end_of_sentence|>", adds_bos=True,
    ),
    "keyed": Style("keyed", _IM, _MARKS, eos="<|im_end|>"),
    "chatml": Style("chatml", _IM, _MARKS, eos="<|im_end|>"),
}  # fmt: skip
