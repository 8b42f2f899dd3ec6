"""A folder with a Hugging Face checkpoint: is everything there, and can it be exported? Loads no weights."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from fleetchat.cutter.template_check import checked_folder
from fleetchat.errors import SourceError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
FETCH_AGAIN = "fetch or copy the file again"


def is_checkpoint(folder: Path) -> bool:
    """Whether the folder is one: a configuration and no OpenVINO model beside it."""
    return (
        (folder / CONFIG).is_file() and not any(folder.glob("*model.xml")) and not any(folder.glob("*.gguf"))
    )


def check_checkpoint(folder: Path) -> None:
    """Raise SourceError for the first thing that is missing, cut off or cannot be exported."""
    config = read_config(folder)
    method = (config.get("quantization_config") or {}).get("quant_method")
    if method is not None:
        raise SourceError(
            f"{folder}: the checkpoint is quantised ({method}), which cannot be exported",
            hint="take the unquantised checkpoint, or an OpenVINO export of the model",
        )
    weights = _weights(folder)
    if not weights:
        raise SourceError(
            f"{folder} has no weights: expected model.safetensors or the files that {INDEX} names",
            hint=FETCH_AGAIN,
        )
    for name in ("tokenizer.json",):
        if not (folder / name).is_file():
            raise SourceError(f"{folder} has no {name}", hint=FETCH_AGAIN)
    for path in weights:
        if path.suffix == ".safetensors":
            _check_safetensors(path)
    checked_folder(folder)  # an export takes long; what its template is worth is known before


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`. Raises SourceError."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not a readable configuration: {error}", hint=FETCH_AGAIN) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise SourceError(f"{path} is not the configuration of a model: it names no model_type")
    return config


def weight_bytes(folder: Path) -> int:
    """Size of all weights, 0 for none."""
    return sum(path.stat().st_size for path in _weights(folder))


def checkpoint_identity(folder: Path, weights: str) -> str:
    """A hash of what is exported from what: small files by content, weights by name, size and header."""
    digest = hashlib.sha256(weights.encode())
    small = {path for pattern in SMALL_FILES for path in folder.glob(pattern)}
    for path in sorted(small):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for path in _weights(folder):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _weights(folder: Path) -> list[Path]:
    """The weight files. Raises SourceError when the index names one that is missing."""
    index = folder / INDEX
    if not index.is_file():
        found = [sorted(folder.glob(pattern)) for pattern in WEIGHT_FILES]
        return next((files for files in found if files), [])
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index} is not a readable index: {error}", hint=FETCH_AGAIN) from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise SourceError(f"{folder} lacks {missing[0]}, which {INDEX} names", hint=FETCH_AGAIN)
    return [folder / name for name in names]


def _check_safetensors(path: Path) -> None:
    """Is the file as long as its header says? Format: 8 bytes length, JSON header, tensors."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, size)))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except (OSError, struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise SourceError(
            f"{path}: the header is damaged or cut off (file of {size} bytes)", hint=FETCH_AGAIN
        ) from error
    if expected > size:
        raise SourceError(
            f"{path} is cut off: its tensors need {expected} bytes, the file has {size}", hint=FETCH_AGAIN
        )
