"""Tokenizer, chat template and configurations of a made-up model: of the right size, no more than that."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from fleetchat.fleet.shapes import ModelShape

CONTEXT = 131_072
SPECIALS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def write_companions(folder: Path, shape: ModelShape) -> None:
    """Write the files that an export has beside its IR."""
    write_tokenizer(folder / "tokenizer.json", shape.vocabulary)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8", newline="\n")
    first = shape.vocabulary - len(SPECIALS)
    ids = {"bos_token_id": first, "eos_token_id": [first + 1, first + 4]}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": shape.tied,
        **ids,
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[4],
    }
    for name, content in (
        ("config.json", config),
        ("generation_config.json", ids),
        ("tokenizer_config.json", settings),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(path: Path, vocabulary: int) -> None:
    """A byte-level tokenizer without merges: a byte's id is its value, the ids behind are numbered words."""
    plain = vocabulary - len(SPECIALS)
    tokens = {character: byte for byte, character in enumerate(_byte_characters())}
    tokens |= {f"Ġw{number}": number for number in range(len(tokens), plain)}
    tokenizer = Tokenizer(BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIALS])
    tokenizer.save(str(path))


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level BPE (the table of GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]
