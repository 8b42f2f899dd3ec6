"""Where the tiny exported models are, and how they are compiled in exact precision."""

from __future__ import annotations

from pathlib import Path

import openvino as ov

from fleetchat.engine.precision import Precision, openvino_config

CORE = ov.Core()
FAMILIES = ("llama", "qwen3", "falcon")  # without a window
HIDDEN, LAYERS, VOCABULARY = 64, 4, 256


def whole_ir(family: str) -> Path:
    """The IR of a family, with 4 layers (mistral: 2 and a window of 16 tokens)."""
    return Path(__file__).parent.parent / "fixtures" / family / "openvino_model.xml"


def compiled(model: ov.Model | Path) -> ov.CompiledModel:
    """Compiled as `exact` says, for one thread."""
    loaded = CORE.read_model(model) if isinstance(model, Path) else model
    return CORE.compile_model(loaded, "CPU", openvino_config(Precision.EXACT, 1))
