"""The families of the test matrix: what is particular of each, and how its models are chatted with.

A fixture is an exported IR without a vocabulary. A byte-level tokenizer goes with it: the id of a byte is its
value, and the family's special tokens take ids of bytes that never occur in UTF-8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.ids import Rollback
from tests.cutter.fixture_models import VOCABULARY, whole_ir

FIRST_SPECIAL = 0xF5  # this byte and those above it are in no UTF-8 text
CONTEXT = 512
USER = "Hello there, how do you do"

_FOR = "{%- for m in messages -%}"
_END = "{%- endfor -%}"
_CHATML = (
    _FOR + "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)  # fmt: skip
_LLAMA3 = (
    "{{ bos_token }}" + _FOR
    + "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
    + _END + "{%- if add_generation_prompt -%}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}"
)  # fmt: skip
_MISTRAL = (
    "{{ bos_token }}" + _FOR
    + "{%- if m.role == 'user' -%}{{ '[INST] ' + m.content + '[/INST]' }}"
    "{%- elif m.role == 'assistant' -%}{{ ' ' + m.content + eos_token }}"
    "{%- else -%}{{ raise_exception('Only user and assistant roles are supported!') }}{%- endif -%}" + _END
)  # fmt: skip
_PHI3 = (
    _FOR + "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}"
)  # fmt: skip
_PHI4_MINI = (
    _FOR + "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)  # fmt: skip
_GEMMA = (
    "{{ bos_token }}{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}"
    "{%- endif -%}" + _FOR + "{%- set role = 'model' if m.role == 'assistant' else m.role -%}"
    "{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)  # fmt: skip
_GRANITE = (
    _FOR + "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif -%}"
)  # fmt: skip
_OLMO2 = (
    "{{ bos_token }}" + _FOR
    + "{%- if m.role == 'assistant' -%}{{ '<|assistant|>\n' + m.content + eos_token + '\n' }}"
    "{%- else -%}{{ '<|' + m.role + '|>\n' + m.content + '\n' }}{%- endif -%}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}"
)  # fmt: skip
_FALCON = (
    _FOR + "{%- if not loop.first -%}{{ '\n' }}{%- endif -%}"
    "{{ ('Assistant: ' if m.role == 'assistant' else 'User: ') + m.content }}" + _END
    + "{%- if add_generation_prompt -%}{{ '\nAssistant:' }}{%- endif -%}"
)  # fmt: skip
_HARMONY = (
    _FOR + "{{ '<|start|>' + m.role }}{%- if m.role == 'assistant' -%}{{ '<|channel|>final' }}{%- endif -%}"
    "{{ '<|message|>' + m.content + '<|end|>' }}" + _END
    + "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}"
)  # fmt: skip
_LINES = _FOR + "{{ m.content + '\n' }}" + _END

_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_HEADERS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
_TURNS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
_GRANITES = ("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>")
_HARMONIES = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>")


@dataclass(frozen=True)
class Case:
    """One row of the matrix.

    `ends` are the special tokens that must stop a reply, `stated` those of them that generation_config.json
    names. `prompt` is how the template renders USER. `later_inputs` are the inputs of stages behind the first
    that not every family has.
    """

    name: str
    template: str
    specials: tuple[str, ...]
    stated: tuple[str, ...]
    ends: tuple[str, ...]
    prompt: str
    bos: str | None = None
    layers: int = 3
    window: int = 0
    rollback: Rollback = Rollback.MASK
    attention_layers: int | None = None  # None: all
    fused_layers: int | None = None  # None: all that have attention
    later_inputs: tuple[str, ...] = ("position_ids",)
    pages: bool = True
    asked: bool = True  # through `fleetchat ask`; else another row of the same family is

    @property
    def attention(self) -> int:
        return self.layers if self.attention_layers is None else self.attention_layers

    @property
    def fused(self) -> int:
        return self.attention if self.fused_layers is None else self.fused_layers

    def ids_of(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(FIRST_SPECIAL + self.specials.index(name) for name in names)


_CHATML_PROMPT = f"<|im_start|>user\n{USER}<|im_end|>\n<|im_start|>assistant\n"
_LLAMA3_PROMPT = (
    f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{USER}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
_GEMMA_PROMPT = f"<bos><start_of_turn>user\n{USER}<end_of_turn>\n<start_of_turn>model\n"
_GRANITE_PROMPT = (
    f"<|start_of_role|>user<|end_of_role|>{USER}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
)


def _chatml(name: str, **own: Any) -> Case:
    stated = ("<|im_end|>", "<|endoftext|>")
    return Case(name, _CHATML, _IM, stated, stated, _CHATML_PROMPT, **own)


def _llama3(name: str, **own: Any) -> Case:
    ends = ("<|end_of_text|>", "<|eot_id|>")
    bos = "<|begin_of_text|>"
    return Case(name, _LLAMA3, _HEADERS, ends[:1], ends, _LLAMA3_PROMPT, bos=bos, **own)


def _gemma(name: str, **own: Any) -> Case:
    trimmed = {"window": 16, "rollback": Rollback.TRIM, **own}
    ends = ("<eos>", "<end_of_turn>")
    return Case(name, _GEMMA, _TURNS, ends, ends, _GEMMA_PROMPT, bos="<bos>", **trimmed)


def _granite(name: str, **own: Any) -> Case:
    ends = ("<|end_of_text|>",)
    return Case(name, _GRANITE, _GRANITES, ends, ends, _GRANITE_PROMPT, **own)


CASES = (
    _llama3("llama3"),
    _llama3("llama3-int8", asked=False),
    _llama3("llama3-int4", asked=False),
    _chatml("qwen2"),
    _chatml("qwen3", layers=4),
    _chatml("qwen3-moe"),
    _chatml("smollm3"),
    Case(
        "mistral", _MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]"), ("</s>",), ("</s>",),
        f"<s>[INST] {USER}[/INST]",
        bos="<s>", layers=2, window=16, rollback=Rollback.TRIM,
    ),
    Case(
        "phi3", _PHI3, _ROLES, ("<|endoftext|>",), ("<|endoftext|>", "<|end|>"),
        f"<|user|>\n{USER}<|end|>\n<|assistant|>\n",
        window=16, rollback=Rollback.TRIM,
    ),
    Case(
        "phi4-mini", _PHI4_MINI, _ROLES, ("<|endoftext|>",), ("<|endoftext|>", "<|end|>"),
        f"<|user|>{USER}<|end|><|assistant|>",
        asked=False,
    ),
    _gemma("gemma2"),
    _gemma("gemma2-eager", attention_layers=0, pages=False, asked=False),
    _gemma("gemma3"),
    _gemma("gemma4-shared", layers=2, attention_layers=5, fused_layers=1, asked=False),
    _granite("granite"),
    Case(
        "olmo2", _OLMO2, ("<|endoftext|>",), ("<|endoftext|>",), ("<|endoftext|>",),
        f"<|endoftext|><|user|>\n{USER}\n<|assistant|>\n",
        bos="<|endoftext|>",
    ),
    Case(
        "falcon", _FALCON, ("<|endoftext|>",), ("<|endoftext|>",), ("<|endoftext|>",),
        f"User: {USER}\nAssistant:",
        layers=4,
    ),
    Case(
        "gpt-oss", _HARMONY, _HARMONIES, ("<|return|>", "<|endoftext|>", "<|call|>"),
        ("<|return|>", "<|endoftext|>", "<|call|>"),
        f"<|start|>user<|message|>{USER}<|end|><|start|>assistant",
        window=16, rollback=Rollback.TRIM,
    ),
    Case(
        "gpt2", _LINES, ("<|endoftext|>",), ("<|endoftext|>",), ("<|endoftext|>",), f"{USER}\n",
        later_inputs=(),
    ),
    _granite("granite-hybrid", rollback=Rollback.RESTART, attention_layers=1, later_inputs=(), pages=False),
)  # fmt: skip


def write_folder(case: Case, folder: Path, *, more_ends: tuple[int, ...] = ()) -> Path:
    """A folder as optimum-cli exports it; `more_ends` are ids that end a reply besides the family's own."""
    folder.mkdir(parents=True)
    xml = whole_ir(case.name)
    for source in (xml, xml.with_suffix(".bin")):
        (folder / source.name).symlink_to(source)
    write_tokenizer(folder / "tokenizer.json", case.specials)
    (folder / "chat_template.jinja").write_text(case.template, encoding="utf-8", newline="\n")
    ids: dict[str, object] = {"eos_token_id": [*case.ids_of(case.stated), *more_ends]}
    if case.bos is not None:
        ids["bos_token_id"] = case.ids_of((case.bos,))[0]
    for name, content in {
        "config.json": {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, **ids},
        "generation_config.json": ids,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_tokenizer(path: Path, specials: tuple[str, ...]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    from tests.tiny_model import byte_characters

    vocabulary = {character: byte for byte, character in enumerate(byte_characters()[:FIRST_SPECIAL])}
    vocabulary |= {text: FIRST_SPECIAL + number for number, text in enumerate(specials)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    tokenizer.save(str(path))
