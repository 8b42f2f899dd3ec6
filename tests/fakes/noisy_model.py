"""A model whose weights are a little wrong: a draft that is right at times, and wrong at others."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import openvino as ov

LEAST_ELEMENTS = 256  # smaller constants are shapes, axes and epsilons


def write_noisy_copy(whole: Path, folder: Path, *, noise: float, seed: int = 0) -> Path:
    """A copy of the IR in `whole` with every floating-point weight off by about `noise` of itself."""
    folder.mkdir(parents=True, exist_ok=True)
    model = ov.Core().read_model(whole / "openvino_model.xml")
    generator = np.random.default_rng(seed)
    for op in model.get_ops():
        if op.get_type_name() == "Constant" and op.get_element_type().is_real():
            _disturb(op, generator, noise)
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    shutil.copy(whole / "tokenizer.json", folder / "tokenizer.json")
    return folder


def _disturb(op: ov.Node, generator: np.random.Generator, noise: float) -> None:
    values = op.get_data()
    if values.size < LEAST_ELEMENTS:
        return
    factors = 1 + noise * generator.standard_normal(values.shape)
    disturbed = ov.opset13.constant((values * factors).astype(values.dtype), shared_memory=False)
    op.output(0).replace(disturbed.output(0))
