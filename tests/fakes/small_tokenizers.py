"""Small tokenizers of the two kinds that chat models have, made in a few milliseconds."""

from __future__ import annotations

import json
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = [
    "The capital of France is Paris. What is the capital of Italy?",
    "user system assistant You are a helpful assistant.",
    "im_start im_end endoftext 2024 1,234.5   a  b",
    "naïve café 你好 世界 مرحبا नमस्ते 👩‍👩‍👧 👍🏽",
]
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@cache
def byte_level() -> str:
    """As SmolLM2's: single digits, byte-level BPE, ChatML tokens. All 256 bytes are tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        show_progress=False,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in CHATML],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return str(tokenizer.to_str())


@cache
def swallowing() -> str:
    """As `byte_level`, with special tokens that swallow the white space around them (Phi-3's)."""
    definition = json.loads(byte_level())
    for token in definition["added_tokens"]:
        token["rstrip"] = token["content"] == "<|im_end|>"
        token["lstrip"] = token["content"] == "<|im_start|>"
    return json.dumps(definition)


@cache
def byte_fallback() -> str:
    """As Llama 2's: `▁` for a space, characters outside the vocabulary as byte tokens."""
    words = ["▁", *"TheCapitlofFrncsPa.?", "▁The", "▁is", "Paris", "▁Paris", "é"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(words)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("P", "a"), ("Pa", "r"), ("i", "s")]
    for merged in ("Pa", "Par", "is"):
        vocabulary.setdefault(merged, len(vocabulary))
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    )
    return str(tokenizer.to_str())


@cache
def unigram() -> str:
    """A vocabulary whose model can reach the string of a special token by itself."""
    pieces = [("<unk>", 0.0), ("</s>", -0.1), *((character, -5.0) for character in "</>sab ")]
    tokenizer = Tokenizer(models.Unigram([*pieces], unk_id=0, byte_fallback=False))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    return str(tokenizer.to_str())
