"""A checkpoint is looked at before anything is exported: each fault is one line that names the file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from fleetchat.cutter.checkpoint import check_checkpoint, checkpoint_identity, is_checkpoint, weight_bytes
from fleetchat.errors import SourceError
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_tokenizer


def write_checkpoint(folder: Path, *, tensor: int = 64, **config: Any) -> Path:
    """A folder with the files of a checkpoint; its one tensor has so many bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    write_tiny_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    header = json.dumps({"w": {"dtype": "U8", "shape": [tensor], "data_offsets": [0, tensor]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(tensor))
    return folder


def test_a_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    assert is_checkpoint(folder)
    check_checkpoint(folder)
    assert weight_bytes(folder) == (folder / "model.safetensors").stat().st_size


def test_an_exported_model_is_no_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "openvino_model.xml").touch()
    assert not is_checkpoint(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(SourceError, match=r"model has no tokenizer\.json$"):
        check_checkpoint(folder)
    write_tiny_tokenizer(folder / "tokenizer.json")
    index = {"weight_map": {"w": "model.safetensors", "v": "model-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match=r"lacks model-00002\.safetensors, which model\.safetensors\.index"):
        check_checkpoint(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(SourceError, match="has no weights: expected"):
        check_checkpoint(folder)


def test_weights_that_are_cut_off_are_named_with_both_sizes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", tensor=4096)
    path = folder / "model.safetensors"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[: whole // 2])
    with pytest.raises(
        SourceError, match=f"is cut off: its tensors need {whole} bytes, the file has {whole // 2}"
    ):
        check_checkpoint(folder)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(SourceError, match=r"the header is damaged or cut off \(file of 20 bytes\)"):
        check_checkpoint(folder)


def test_a_quantised_checkpoint_is_refused_by_its_method(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", quantization_config={"quant_method": "gptq"})
    with pytest.raises(SourceError, match=r"the checkpoint is quantised \(gptq\), which cannot be exported"):
        check_checkpoint(folder)


@pytest.mark.parametrize(("text", "said"), [("{", "is not a readable"), ("{}", "names no model_type")])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "config.json").write_text(text)
    with pytest.raises(SourceError, match=said):
        check_checkpoint(folder)


def test_another_format_of_weights_is_another_export(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    before = checkpoint_identity(folder, "int4")
    assert before == checkpoint_identity(folder, "int4")
    assert before != checkpoint_identity(folder, "int8")
    (folder / "tokenizer.json").write_text("{} ")
    assert before != checkpoint_identity(folder, "int4")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "chat_template.jinja",
            "fine\n{% for %}",
            r"chat_template\.jinja: the chat template is wrong in line 2: ",
        ),
        (
            "chat_template.jinja",
            "{{ 1 / 0 }}",
            r"chat_template\.jinja: the chat template fails \(template line 1\)",
        ),
        ("tokenizer.json", "{}", r"tokenizer\.json is not a tokenizer"),
    ],
)
def test_what_the_chat_needs_is_tried_before_an_export(
    tmp_path: Path, file: str, content: str, said: str
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(SourceError, match=said):
        check_checkpoint(folder)
