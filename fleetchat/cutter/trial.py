"""Run a whole model, or stages in a row, in this process: for self-checks and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import openvino as ov
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


@dataclass
class Trial:
    """A session on compiled stages, from an empty cache.

    The cache is known by its mask: one entry a cell, 0 for a cell that a rollback hid. `largest_activation`
    is the largest absolute value that crossed a boundary so far; infinite once one was not finite.
    """

    stages: Sequence[ov.CompiledModel]
    mask: list[int] = field(default_factory=list)
    largest_activation: float = 0.0

    def __post_init__(self) -> None:
        self._requests = [stage.create_infer_request() for stage in self.stages]

    @property
    def length(self) -> int:
        """Logical length: the cells that are not hidden."""
        return sum(self.mask)

    def feed(
        self, token_ids: IntArray, rows: IntArray | None = None, hidden: FloatArray | None = None
    ) -> FloatArray:
        """Append tokens and return the logits [len(rows), vocabulary] of those rows (None: of all).

        Stages from the midst of a chain take `hidden` [rows, width]; without the last stage what is returned
        are hidden rows.
        """
        wanted = np.arange(len(token_ids)) if rows is None else rows
        inputs = self._append(token_ids)
        inputs["logit_rows"] = wanted.astype(np.int64)
        if hidden is not None:
            inputs["inputs_embeds"] = hidden[None]
        for index, (stage, request) in enumerate(zip(self.stages, self._requests, strict=True)):
            output = _infer(stage, request, inputs)
            if index < len(self.stages) - 1:
                self._note_activation(output)
            inputs["inputs_embeds"] = output
        if output.ndim == 3:  # a whole model, or no last stage: all rows
            return output.reshape(-1, output.shape[-1])[wanted]
        return output

    def outputs(self, token_ids: IntArray) -> list[FloatArray]:
        """Append tokens to a single model with several outputs; each of them as [rows, width]."""
        (stage,), (request,) = self.stages, self._requests
        fed = self._append(token_ids)
        request.infer({port.any_name: fed[port.any_name] for port in stage.inputs})
        tensors = (request.get_output_tensor(index).data for index in range(len(stage.outputs)))
        return [np.array(one, np.float32).reshape(-1, one.shape[-1]) for one in tensors]

    def hide(self, count: int) -> None:
        """Roll back the newest `count` tokens by mask: their cells stay and count no more."""
        live = [cell for cell, visible in enumerate(self.mask) if visible]
        for cell in live[len(live) - count :]:
            self.mask[cell] = 0

    def _append(self, token_ids: IntArray) -> dict[str, NDArray[np.generic]]:
        """Make cells for tokens; the inputs that all models have in common."""
        first, count = self.length, len(token_ids)
        self.mask += [1] * count
        return {
            "input_ids": token_ids[None],
            "attention_mask": np.array(self.mask, np.int64)[None],
            "position_ids": np.arange(first, first + count, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }

    def _note_activation(self, hidden: FloatArray) -> None:
        largest = float(np.abs(hidden).max()) if np.isfinite(hidden).all() else np.inf
        self.largest_activation = max(self.largest_activation, largest)


def _infer(
    stage: ov.CompiledModel, request: ov.InferRequest, inputs: Mapping[str, NDArray[np.generic]]
) -> FloatArray:
    fed = {port.any_name: inputs[port.any_name] for port in stage.inputs}
    return np.array(request.infer(fed)[0], np.float32)
