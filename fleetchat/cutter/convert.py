"""GGUF -> stateful OpenVINO IR, by openvino_genai in a process of its own."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from fleetchat.child import child_environment, run_child
from fleetchat.cutter.files import failed_write, link_or_copy, write_text
from fleetchat.errors import BuildError

IR_NAME = "openvino_model.xml"
MADE = (
    *("openvino_model.xml", "openvino_model.bin"),
    *("openvino_tokenizer.xml", "openvino_tokenizer.bin"),
    *("openvino_detokenizer.xml", "openvino_detokenizer.bin"),
)


@dataclass(frozen=True, slots=True)
class TokenizerAnswer:
    """What the source's own tokenizer says of some texts: their ids, and those ids as text again."""

    ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


def converter_version() -> str:
    """Name and version of what converts."""
    return f"openvino_genai {importlib.metadata.version('openvino-genai')}"


def convert_gguf(gguf: Path, folder: Path) -> Path:
    """Convert into `folder` (empty, same filesystem if possible); returns the IR's xml.

    Raises BuildError with the converter's last words when it fails or crashes, OSError when it had no space.
    """
    copy = folder / "model.gguf"
    link_or_copy(gguf, copy)
    try:
        _run(["convert", str(copy)], f"converting {gguf.name}")
    except BuildError as error:
        if (reason := failed_write(folder, gguf.stat().st_size)) is not None:
            raise reason from error
        raise
    finally:
        copy.unlink(missing_ok=True)
    missing = [name for name in MADE if not (folder / name).is_file()]
    if missing:
        raise BuildError(f"the converter made no {missing[0]} from {gguf.name}")
    return folder / IR_NAME


def ask_tokenizer(folder: Path, texts: tuple[str, ...], scratch: Path) -> TokenizerAnswer:
    """Ask openvino_genai's tokenizer in `folder`; `scratch` is a folder for the two messages."""
    request, answer = scratch / "request.json", scratch / "answer.json"
    write_text(request, json.dumps({"texts": texts}))
    _run(["tokenize", str(folder), str(request), str(answer)], "asking the source's tokenizer")
    found = json.loads(answer.read_text(encoding="utf-8"))
    return TokenizerAnswer(tuple(tuple(ids) for ids in found["ids"]), tuple(found["texts"]))


def _run(arguments: list[str], doing: str) -> None:
    command = [sys.executable, "-P", "-m", "fleetchat.cutter.genai_process", *arguments]
    code, said = run_child(command, child_environment())
    if code != 0:
        raise BuildError(
            f"{doing} failed: {_last_words(said, code)}",
            hint="the file may be of an architecture or quantisation that openvino_genai does not read",
        )


def _last_words(said: str, code: int) -> str:
    """The reason in one line: the last thing the child said, or how it died."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        died = f"openvino_genai crashed ({name})"
        return f"{died}: {lines[-1]}" if lines else died
    return lines[-1] if lines else f"exit code {code}"
