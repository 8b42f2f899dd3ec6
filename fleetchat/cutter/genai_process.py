"""The child process that runs openvino_genai: converting a GGUF, asking its tokenizer.

Run as `python -m fleetchat.cutter.genai_process convert GGUF` or `… tokenize FOLDER REQUEST ANSWER`. Its
memory and its crashes (the C++ reader aborts on some files) stay out of the build. It ends when its stdin
does, so that it never outlives the build.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def convert(gguf: str) -> Any:
    """Write `openvino_model.xml` and the tokenizer's IRs beside the GGUF; returns what to keep alive."""
    import openvino_genai

    return openvino_genai.LLMPipeline(
        gguf, "CPU", enable_save_ov_model=True, INFERENCE_PRECISION_HINT="f32", ATTENTION_BACKEND="SDPA"
    )


def tokenize(folder: str, request: str, answer: str) -> Any:
    """Answer with the ids of each text and the text of the ids; returns what to keep alive."""
    import openvino_genai

    asked = json.loads(Path(request).read_text(encoding="utf-8"))
    tokenizer = openvino_genai.Tokenizer(folder)
    ids = [_encoded(tokenizer, text) for text in asked["texts"]]
    texts = [tokenizer.decode(one, skip_special_tokens=False) if one else "" for one in ids]
    Path(answer).write_text(json.dumps({"ids": ids, "texts": texts}), encoding="utf-8")
    return tokenizer


def _encoded(tokenizer: Any, text: str) -> list[int]:
    encoded = tokenizer.encode(text, add_special_tokens=False).input_ids.data
    return [int(one) for one in encoded.reshape(-1)]


def _end_with_parent() -> None:
    """Block until the parent is gone."""
    sys.stdin.buffer.read()
    os._exit(1)


COMMANDS: dict[str, Callable[..., Any]] = {"convert": convert, "tokenize": tokenize}


def main(arguments: list[str]) -> None:
    """Run one command and end the process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kept = COMMANDS[arguments[0]](*arguments[1:])
    assert kept is not None
    os._exit(0)  # while `kept` lives: its C++ destructor was seen to hang with the GIL held


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
