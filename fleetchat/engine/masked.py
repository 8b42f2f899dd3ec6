"""The portable engine: a stateful OpenVINO model, and rollback by attention mask.

One compiled model, one InferRequest a session; OpenVINO keeps the KV cache in the request's state. (A device
that keeps one state for a whole compiled model gets one of these a session.)
New rows always go behind the last physical cell. Rejected rows stay where they are and get a 0 in the
attention mask, position ids go on logically, so a rollback copies nothing. Dead cells are got rid of by
`compact`, which copies states a few at a time, or for nothing when a session starts again at position 0.

A sliding window counts hidden cells: models that have one get rid of the dead cells in every rollback, which
copies their states. Recurrent states cannot be rolled back: a slice that asks for it fails.

Inputs are views of memory that lives here, outputs are views of OpenVINO's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from fleetchat.engine.device import CPU, needs_own_models, require_device
from fleetchat.engine.fast_settings import DEFAULT, FastSettings
from fleetchat.engine.fused import fused_attention_layers
from fleetchat.engine.inputs import StepInput
from fleetchat.engine.interface import Cells, EngineSlice, EngineTraits, SliceOutput
from fleetchat.engine.ledger import KvLedger, reserved_cells
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.engine.refusal import Fault, StageShape, malformed, overflow
from fleetchat.engine.states import Shape
from fleetchat.engine.warm_up import (
    OVER_ALLOCATION,
    REBUILD,
    affordable_cells,
    measured_over_allocation,
    reason,
    warmed_up,
)
from fleetchat.errors import FleetError, SliceFailed
from fleetchat.ids import Rollback, SessionKey
from fleetchat.wire.frames import FaultCode

COMPACTION_BYTES = 8 << 20  # of state copied in one step: 2 to 4 ms on a server CPU
WARM_UP_ROWS = 64


@dataclass(slots=True)
class _Session:
    """`inputs` are those of the request that the stage has."""

    request: ov.InferRequest
    inputs: dict[str, StepInput]
    ledger: KvLedger = field(default_factory=KvLedger)
    states_compacted: int = 0  # of a compaction under way


class MaskedEngine:
    """Implements `engine.interface.StageEngine` for one shard.

    `context` is the model's; a session may hold `reserved_cells(context)` physical cells. `cells` is the
    budget of all sessions, None = what the free memory allows, which `sharers` stages divide between them.
    `attention_layers` is what must be fused on CPU (None = all layers that have state). `fast` has the
    settings of that precision. `rollback` is the manifest's. Raises FleetError when the shard cannot be
    loaded, or is not what the arguments say.
    """

    def __init__(
        self,
        xml: Path,
        *,
        first_stage: bool,
        last_stage: bool,
        hidden: int,
        vocabulary: int,
        precision: Precision | str,
        threads: int,
        context: int,
        kv_values_per_cell: int,
        cells: int | None = None,
        sharers: int = 1,
        device: str = "CPU",
        attention_layers: int | None = None,
        fast: FastSettings = DEFAULT,
        compaction_bytes: int = COMPACTION_BYTES,
        rollback: Rollback = Rollback.MASK,
    ) -> None:
        self._shape = StageShape(first_stage, last_stage, hidden, vocabulary)
        self._precision = Precision(precision)
        self._kv_values_per_cell = kv_values_per_cell
        self._compaction_bytes = compaction_bytes
        self._rollback = rollback
        self._reservation = reserved_cells(context)
        self._sessions: dict[SessionKey, _Session] = {}
        config = openvino_config(self._precision, threads, device=device, fast=fast)
        self._compile = partial(compile_on, xml, device, config)
        self._compiled = self._compile()
        self._ports = _ports_of(self._compiled)
        self._own_models = False
        self._require_inputs(xml)
        self.fused_layers = fused_attention_layers(self._compiled) if device == "CPU" else 0
        warm_rows = max(1, min(WARM_UP_ROWS, context // 4))
        self._layout = warmed_up(self, xml, warm_rows, recurrent=rollback is Rollback.RESTART)
        self._require_expected(xml, device, attention_layers)
        self._own_models = needs_own_models(device, self)
        fixed = self._layout.share_of_fixed(self._reservation)
        self.cell_bytes = self._layout.cell_bytes(self._precision) + fixed
        self.over_allocation = OVER_ALLOCATION
        if cells is None:
            self.over_allocation = measured_over_allocation(self, warm_rows, self.cell_bytes)
            cells = affordable_cells(self.cell_bytes, self.over_allocation, sharers)
        self._traits = EngineTraits("masked", sessions_per_batch=1, can_fork=False, block_size=1, cells=cells)

    # --- what StageEngine asks for ------------------------------------------------------------------

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    def length(self, key: SessionKey) -> int:
        session = self._sessions.get(key)
        return session.ledger.length if session else 0

    def cells(self, key: SessionKey) -> Cells:
        session = self._sessions.get(key)
        return Cells(session.ledger.live, session.ledger.dead) if session else Cells(0, 0)

    def sessions(self) -> list[SessionKey]:
        return list(self._sessions)

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        """One infer a slice. With more than one slice the rows are copies, as one session may come twice."""
        outputs = []
        for item in slices:
            output = self._run_slice(item)
            if len(slices) > 1:
                output = SliceOutput(output.rows.copy(), output.fault)
            outputs.append(output)
        return outputs

    def truncate(self, key: SessionKey, length: int) -> None:
        session = self._sessions.get(key)
        if session is not None and length < session.ledger.length:
            self._finish_compaction(key)
            if length and self._rollback is Rollback.RESTART:
                self.forget(key)  # what is asked for is not to be had; a slice then fails as a gap
            else:
                self._cut(key, session, length)

    def compact(self, key: SessionKey) -> bool:
        """Copy the live rows of the next few states in place; True when the session has no dead cells.

        States are switched one by one: the session is not run before the last one is done (`run` and
        `truncate` finish it first), so nobody sees a mixture, no second copy of the cache is held, and
        all steps cost the same. When a copy fails the session is emptied.
        """
        session = self._sessions.get(key)
        if session is None or session.ledger.dead == 0:
            return True
        plan = session.ledger.compaction_plan()
        states = _states(session.request)
        bytes_of_one = 4 * self._kv_values_per_cell * session.ledger.physical // len(states) + 1
        count = max(1, self._compaction_bytes // bytes_of_one)
        begin = session.states_compacted
        try:
            for state in states[begin : begin + count]:
                _keep_rows(state, self._layout.axes[state.name], plan)
        except RuntimeError:
            self.forget(key)
            return True
        session.states_compacted = begin + count
        if session.states_compacted < len(states):
            return False
        session.states_compacted = 0
        session.ledger.compacted()
        return True

    def compacting(self, key: SessionKey) -> bool:
        """Whether some but not all states of the session are copied."""
        session = self._sessions.get(key)
        return session is not None and session.states_compacted > 0

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        raise SliceFailed(FaultCode.UNSUPPORTED, "the masked engine does not fork sessions")

    def forget(self, key: SessionKey) -> None:
        """Drop the request: that frees its cache, a reset would not; making a new one takes 0.1 ms."""
        self._sessions.pop(key, None)

    def close(self) -> None:
        self._sessions.clear()

    # --- one slice -------------------------------------------------------------------------------------

    def _run_slice(self, item: EngineSlice) -> SliceOutput:
        self._finish_compaction(item.key)
        fault = self._refusal(item)
        if fault is not None:
            return _failed(fault)
        session = self._sessions.get(item.key)
        if session is None:
            session = self._sessions[item.key] = self._new_session()
        if not self._cut(item.key, session, item.first):
            return _failed((FaultCode.EXCEPTION, "the cache could not be cut to fewer cells"))
        session.ledger.append(len(item.token_ids))
        try:
            rows = self._infer(session, item.token_ids, item.hidden, item.logit_rows)
        except Exception as error:
            self.forget(item.key)  # nobody knows which layers have stored the rows
            return _failed((FaultCode.EXCEPTION, f"inference failed: {reason(error)}"))
        return SliceOutput(rows)

    def _refusal(self, item: EngineSlice) -> Fault | None:
        length = self.length(item.key)
        fault = malformed(item, length, self._shape)
        if fault is None and self._rollback is Rollback.RESTART and 0 < item.first < length:
            text = f"a recurrent state cannot go back from {length} tokens to {item.first}"
            fault = (FaultCode.UNSUPPORTED, text)
        if fault is not None:
            return fault
        return overflow(
            kept=0 if item.first == 0 else self.cells(item.key).physical,
            rows=len(item.token_ids),
            others=sum(other.ledger.physical for key, other in self._sessions.items() if key != item.key),
            reservation=self._reservation,
            budget=self._traits.cells,
        )

    def _cut(self, key: SessionKey, session: _Session, length: int) -> bool:
        """Take back what lies behind `length`. False when that failed; the session is gone then."""
        session.ledger.truncate(length)
        if length == 0 and session.ledger.physical > 0:
            session.request.reset_state()
            session.ledger.clear()
        elif self._rollback is Rollback.TRIM and session.ledger.dead:
            while not self.compact(key):
                pass
        return key in self._sessions

    def _finish_compaction(self, key: SessionKey) -> None:
        while self.compacting(key):
            self.compact(key)

    def _infer(
        self,
        session: _Session,
        token_ids: NDArray[np.integer],
        hidden: NDArray[np.floating] | None,
        logit_rows: int,
    ) -> NDArray[np.float32]:
        """Run the rows that the ledger has just appended; returns a view of the wanted output rows."""
        rows, inputs, ledger = len(token_ids), session.inputs, session.ledger
        if "position_ids" in inputs:
            inputs["position_ids"].write(ledger.positions(rows)[None])
        if self._shape.first_stage:
            inputs["input_ids"].write(token_ids[None])
        elif hidden is not None:
            inputs["inputs_embeds"].write(hidden[None])
        if self._shape.last_stage:
            inputs["logit_rows"].write(np.arange(rows - max(1, logit_rows), rows))
        inputs["attention_mask"].show(ledger.mask_memory, (1, ledger.physical))
        session.request.infer(share_outputs=True)
        output: NDArray[np.float32] = session.request.get_output_tensor(0).data
        if output.shape != self._output_shape(rows, logit_rows):
            raise RuntimeError(f"the output is {output.shape}, not {self._output_shape(rows, logit_rows)}")
        return output[len(output) - logit_rows :] if self._shape.last_stage else output[0]

    def _output_shape(self, rows: int, logit_rows: int) -> tuple[int, ...]:
        """A model that has lost its Gather on `beam_idx` gives empty tensors and no error."""
        if self._shape.last_stage:
            return (max(1, logit_rows), self._shape.vocabulary)
        return (1, rows, self._shape.hidden)

    def _new_session(self) -> _Session:
        compiled, ports = self._compiled, self._ports
        if self._own_models:
            compiled = self._compile()
            ports = _ports_of(compiled)
        request = compiled.create_infer_request()
        if "beam_idx" in ports:
            request.set_tensor(ports["beam_idx"], ov.Tensor(np.zeros(1, dtype=np.int32)))
        inputs = {
            name: StepInput(port.get_element_type().to_dtype().type, partial(_place, request, port))
            for name, port in ports.items()
            if name != "beam_idx"
        }
        return _Session(request, inputs)

    # --- loading ---------------------------------------------------------------------------------------

    def trial_session(self) -> _Session:
        """One that is not counted; see `warm_up.Runner`."""
        return self._new_session()

    def trial_run(self, session: _Session, rows: int) -> None:
        session.ledger.append(rows)
        hidden = None if self._shape.first_stage else np.ones((rows, self._shape.hidden), dtype=np.float32)
        self._infer(session, np.zeros(rows, dtype=np.int32), hidden, 1)

    def state_shapes(self, session: _Session) -> dict[str, Shape]:
        return {state.name: tuple(map(int, state.state.shape)) for state in _states(session.request)}

    def _require_inputs(self, xml: Path) -> None:
        wanted = {"attention_mask", "input_ids" if self._shape.first_stage else "inputs_embeds"}
        if self._shape.last_stage:
            wanted.add("logit_rows")
        missing = sorted(wanted - set(self._ports))
        if missing:
            raise FleetError(f"{xml.name} cannot be run: it has no input {', '.join(missing)}", hint=REBUILD)

    def _require_expected(self, xml: Path, device: str, attention_layers: int | None) -> None:
        """The shard is the one that the manifest describes, and its layers are fused."""
        if self._layout.values != self._kv_values_per_cell:
            raise FleetError(
                f"{xml.name} keeps {self._layout.values} values a cell, not {self._kv_values_per_cell}",
                hint=REBUILD,
            )
        wanted = len(self._layout.axes) // 2 if attention_layers is None else attention_layers
        if device == "CPU" and self.fused_layers != wanted:
            raise FleetError(
                f"{self.fused_layers} of {wanted} attention layers of {xml.name} keep their cache in place",
                hint=REBUILD,
            )


def compile_on(
    xml: Path, device: str, config: dict[str, object], core: ov.Core | None = None
) -> ov.CompiledModel:
    """Raises FleetError: there is no such device, or it cannot load the shard."""
    core = core or ov.Core()
    if device != CPU:
        require_device(device, core.available_devices)
    try:
        return core.compile_model(str(xml), device, config)
    except RuntimeError as error:
        if device != CPU:
            text = f"{device} cannot load {xml.name}: {reason(error)}"
            raise FleetError(text, hint="start the peer with --device CPU, the one that is tested") from error
        raise FleetError(f"cannot load {xml.name} on {device}: {reason(error)}", hint=REBUILD) from error


def _ports_of(compiled: ov.CompiledModel) -> dict[str, ov.ConstOutput]:
    return {port.get_any_name(): port for port in compiled.inputs}


def _place(
    request: ov.InferRequest, port: ov.ConstOutput, memory: NDArray[np.number], shape: Shape
) -> ov.Tensor:
    """A tensor over `memory` as the request's input; the shape comes first, or the request refuses it."""
    tensor = ov.Tensor(memory, shared_memory=True)
    tensor.shape = shape
    request.set_tensor(port, tensor)
    return tensor


def _states(request: ov.InferRequest) -> list[ov.VariableState]:
    """In the same order for all requests."""
    return sorted(request.query_state(), key=lambda state: state.name)


def _keep_rows(state: ov.VariableState, axis: int, plan: NDArray[np.int64]) -> None:
    live = np.ascontiguousarray(np.take(state.state.data, plan, axis=axis))
    state.state = ov.Tensor(live, shared_memory=True)  # copied by the setter


def _failed(fault: Fault) -> SliceOutput:
    return SliceOutput(np.zeros((0, 0), dtype=np.float32), fault)
