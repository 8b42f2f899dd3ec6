"""A whole causal language model with a KV cache, as a drafter needs it: rows in, one row of logits out.

OpenVINO is imported where the model is loaded: a chat without a draft model never loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.ledger import KvLedger, should_compact
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.engine.states import StateLayout, UnsuitableState, state_layout
from fleetchat.errors import InputError
from fleetchat.fleet.draft.interface import ShouldStop, never

MODEL_FILE = "openvino_model.xml"
ROWS_AT_ONCE = 512  # fed between two looks at `should_stop`
ROWS_WITH_LOGITS = 64  # of a model that computes logits of every row: 12 MiB for 49,152 ids
WARM_UP_ROWS = 4
KNOWN_INPUTS = {"input_ids", "attention_mask", "position_ids", "beam_idx", "logit_rows"}
CONSTANT_STEPS = 6  # from a stored weight to its use: convert, zero point, scale, reshape, convert
# Between the last matrix product and the logits: conversions, scaling, and the soft cap of some families.
BEHIND_THE_HEAD = {"Convert", "Multiply", "Divide", "Add", "Tanh", "Reshape"}


class DraftModel:
    """A compiled stateful model: a whole export, or a build of one stage.

    `path` is its folder or its XML file. Raises InputError when it cannot be loaded, wants inputs
    that we do not have, or keeps a state that cannot be rolled back.
    """

    def __init__(self, path: Path, *, precision: Precision | str, threads: int, device: str = "CPU") -> None:
        import openvino

        self.xml = path / MODEL_FILE if path.is_dir() else path
        self.name = model_name(path)
        if not self.xml.is_file():
            raise InputError(f"no draft model at {self.xml}", hint="name the folder of an OpenVINO export")
        try:
            model = openvino.Core().read_model(str(self.xml))
            sliced = _keep_last_row(model)
            config = openvino_config(precision, threads, device=device)
            self._compiled: Any = openvino.Core().compile_model(model, device, config)
        except RuntimeError as error:
            raise InputError(f"the draft model {self.xml} cannot be loaded: {reason(error)}") from error
        self.inputs = {port.get_any_name() for port in self._compiled.inputs}
        if not {"input_ids", "attention_mask"} <= self.inputs <= KNOWN_INPUTS:
            raise InputError(
                f"the draft model {self.xml} has the inputs {', '.join(sorted(self.inputs))}",
                hint="a draft is a whole causal language model with its cache in its state",
            )
        self.rows_at_once = ROWS_AT_ONCE if sliced or "logit_rows" in self.inputs else ROWS_WITH_LOGITS
        self.layout = self._warmed_up()

    def new_cache(self) -> DraftCache:
        return DraftCache(self, self._compiled.create_infer_request())

    def _warmed_up(self) -> StateLayout:
        cache = self.new_cache()
        try:
            cache.feed([0] * WARM_UP_ROWS)
            before = cache.state_shapes()
            cache.feed([0])
            layout = state_layout(before, cache.state_shapes(), WARM_UP_ROWS)
        except UnsuitableState as error:
            raise InputError(f"the draft model {self.xml} cannot be rolled back: {error}") from error
        except RuntimeError as error:
            raise InputError(f"the draft model {self.xml} cannot be run: {reason(error)}") from error
        if not layout.axes:
            raise InputError(f"the draft model {self.xml} keeps no cache in its state; export it as stateful")
        return layout


class DraftCache:
    """One session's cache, rolled back by attention mask as the stages do it. Errors are RuntimeErrors."""

    def __init__(self, model: DraftModel, request: Any) -> None:
        self._model = model
        self._request = request
        self._ledger = KvLedger()

    @property
    def length(self) -> int:
        return self._ledger.length

    @property
    def physical(self) -> int:
        return self._ledger.physical

    def truncate(self, length: int) -> None:
        """Hide the rows from position `length` on; get rid of hidden rows when they are many."""
        self._ledger.truncate(length)
        if length == 0 and self._ledger.physical:
            self._request.reset_state()
            self._ledger.clear()
        elif should_compact(self._ledger.live, self._ledger.dead):
            self._compact()

    def feed(self, token_ids: Sequence[int], should_stop: ShouldStop = never) -> NDArray[np.float32] | None:
        """Append rows; returns the logits [vocabulary] behind the last one, a view until the next call.

        When `should_stop` turns true, only some rows are appended and None is returned.
        """
        logits = None
        for start in range(0, len(token_ids), self._model.rows_at_once):
            if should_stop():
                return None
            logits = self._infer(token_ids[start : start + self._model.rows_at_once])
        return logits

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {state.name: tuple(map(int, state.state.shape)) for state in self._request.query_state()}

    def _infer(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        rows = len(token_ids)
        self._ledger.append(rows)
        offered = {
            "input_ids": np.array([token_ids], dtype=np.int64),
            "attention_mask": self._ledger.mask()[None],
            "position_ids": self._ledger.positions(rows)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
            "logit_rows": np.array([rows - 1], dtype=np.int64),
        }
        self._request.infer(
            {name: values for name, values in offered.items() if name in self._model.inputs},
            share_inputs=True,
            share_outputs=True,
        )
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        if logits.size == 0:
            raise RuntimeError("the model gave no logits")
        last: NDArray[np.float32] = logits.reshape(-1, logits.shape[-1])[-1]
        return last

    def _compact(self) -> None:
        """Copy the live rows of every state to its front."""
        import openvino

        plan = self._ledger.compaction_plan()
        for state in self._request.query_state():
            live = np.take(state.state.data, plan, axis=self._model.layout.axes[state.name])
            state.state = openvino.Tensor(np.ascontiguousarray(live), shared_memory=True)  # the setter copies
        self._ledger.compacted()


def model_name(path: Path) -> str:
    """What people call the model at `path`, a folder or a file in it."""
    return path.parent.name if path.name == MODEL_FILE else path.stem if path.suffix == ".xml" else path.name


def reason(error: Exception) -> str:
    """The last line of OpenVINO's message: those before it are places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _keep_last_row(model: Any) -> bool:
    """Let only the last row go through the output matrix; True when that could be done.

    A drafter wants one row of logits. In the prefill of a long prompt all the others would be the
    larger part of the work, and 200 KB a row.
    """
    from openvino import opset15 as ops

    node = model.outputs[0].get_node().input_value(0).get_node()
    while node.get_type_name() in BEHIND_THE_HEAD:
        inputs = [value.get_node() for value in node.input_values() if not _is_constant(value.get_node())]
        if len(inputs) != 1:
            return False
        node = inputs[0]
    rows = node.input_value(0)
    rank = rows.get_partial_shape().rank
    if node.get_type_name() != "MatMul" or rank.is_dynamic or rank.get_length() != 3:
        return False
    first, last, step, axis = (np.array([value], dtype=np.int64) for value in (-1, 2**63 - 1, 1, 1))
    node.input(0).replace_source_output(ops.slice(rows, first, last, step, axis).output(0))
    model.validate_nodes_and_infer_types()
    return True


def _is_constant(node: Any, steps: int = CONSTANT_STEPS) -> bool:
    """Whether a node is a constant, or made of constants in a few steps, as compressed weights are."""
    if node.get_type_name() == "Constant":
        return True
    inputs = [value.get_node() for value in node.input_values()]
    return steps > 0 and bool(inputs) and all(_is_constant(one, steps - 1) for one in inputs)
