"""The paged engine (CPU): the shard turned by OpenVINO's PagedAttention transformation, KV in blocks of ours.

One InferRequest serves all sessions: a pass takes any mix of decode, verify and prefill slices. A
rollback shortens a session's table, its cells are overwritten later: no cell is ever dead. Rows
of a session see that session's blocks and no others, so a NaN in one stays there, also when its
blocks are given to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from fleetchat.engine.block_tensors import CACHES, BlockTensors
from fleetchat.engine.blocks import BlockManager, BlockPool
from fleetchat.engine.fast_settings import DEFAULT, FastSettings
from fleetchat.engine.inputs import Shape, StepInput
from fleetchat.engine.interface import Cells, EngineSlice, EngineTraits, SliceOutput
from fleetchat.engine.paged_model import USE_MASKED, compiled_on, paged_model
from fleetchat.engine.paging import PagedPass, Part
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.engine.refusal import Fault, StageShape, malformed
from fleetchat.engine.warm_up import REBUILD, affordable_cells, reason
from fleetchat.errors import FleetError
from fleetchat.ids import ChainId, SessionId, SessionKey
from fleetchat.wire.frames import FaultCode

SESSIONS_PER_BATCH = 32  # 16 one-row sessions take 3 times as long as one, and the gain per session flattens
WARM_UP_ROWS = 64
_INDEXES = {"past_lens", "subsequence_begins", "block_indices", "block_indices_begins", "max_context_len"}
_WARM_UP = SessionKey(ChainId(""), SessionId(0))


class PagedEngine:
    """Implements `engine.interface.StageEngine` for one shard.

    `cells` is the budget of all sessions, begun blocks included; None = what the free memory
    allows, which `sharers` stages divide between them.
    `attention_layers` is how many layers the shard must have (None = any). `fast` has the settings of
    that precision. Raises FleetError when the shard cannot be loaded or is not what the arguments say.
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
        cells: int | None = None,
        sharers: int = 1,
        device: str = "CPU",
        attention_layers: int | None = None,
        fast: FastSettings = DEFAULT,
    ) -> None:
        self._shape = StageShape(first_stage, last_stage, hidden, vocabulary)
        model = paged_model(xml, hidden, first_stage=first_stage)
        config = openvino_config(precision, threads, device=device, fast=fast)
        compiled = compiled_on(model, xml, device, config)
        del model
        self._request = compiled.create_infer_request()
        self._cache = BlockTensors(self._request, compiled.inputs)
        self._inputs = self._step_inputs(compiled, xml)
        if attention_layers is not None and self._cache.layers != attention_layers:
            text = f"{self._cache.layers} of {attention_layers} attention layers of {xml.name} are paged"
            raise FleetError(text, hint=USE_MASKED)
        size = self._cache.block_size
        self.cell_bytes = self._cache.block_bytes // size
        if cells is None:
            blocks = affordable_cells(self.cell_bytes, 1.0, sharers) // size
        else:
            blocks = -(-cells // size)
        self._pool = BlockPool(max(1, blocks))
        self._managers: dict[ChainId, BlockManager[SessionKey]] = {}
        self._traits = EngineTraits("paged", SESSIONS_PER_BATCH, True, size, self._pool.capacity * size)
        self._warm_up(xml)

    # --- what StageEngine asks for ------------------------------------------------------------------

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    @property
    def allocated_cells(self) -> int:
        """Cells for which memory has been taken."""
        return self._cache.blocks * self._cache.block_size

    def length(self, key: SessionKey) -> int:
        manager = self._managers.get(key.chain)
        return manager.length(key) if manager else 0

    def cells(self, key: SessionKey) -> Cells:
        return Cells(self.length(key), 0)

    def sessions(self) -> list[SessionKey]:
        return [key for manager in self._managers.values() for key in manager.sessions()]

    def run(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        """One infer for all slices; a session that comes again begins another, and rows are copies then."""
        groups = list(_without_repeats(slices))
        if len(groups) == 1:
            return self._run_together(slices)
        return [_copied(output) for group in groups for output in self._run_together(group)]

    def truncate(self, key: SessionKey, length: int) -> None:
        if length < self.length(key):
            self._managers[key.chain].truncate(key, length)

    def compact(self, key: SessionKey) -> bool:
        return True

    def compacting(self, key: SessionKey) -> bool:
        return False

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        """Takes no block: the first to write into a shared one gets a copy."""
        self._manager(source.chain).fork(new, source, length)

    def forget(self, key: SessionKey) -> None:
        manager = self._managers.get(key.chain)
        if manager is not None:
            manager.free(key)
            if not manager.sessions():
                del self._managers[key.chain]

    def close(self) -> None:
        self._managers.clear()
        self._cache.clear()

    # --- one pass ------------------------------------------------------------------------------------

    def _run_together(self, slices: Sequence[EngineSlice]) -> list[SliceOutput]:
        faults = [self._refusal(item) or self._place(item) for item in slices]
        ready = [item for item, fault in zip(slices, faults, strict=True) if fault is None]
        outputs = iter(self._outputs(ready) if ready else ())
        return [next(outputs) if fault is None else _failed(fault) for fault in faults]

    def _refusal(self, item: EngineSlice) -> Fault | None:
        return malformed(item, self.length(item.key), self._shape)

    def _place(self, item: EngineSlice) -> Fault | None:
        """Truncate and append, or say how many cells are lacking and change nothing."""
        manager, rows, size = self._manager(item.key.chain), len(item.token_ids), self._cache.block_size
        manager.limit = None if item.granted is None else item.granted // size
        lacking = manager.shortage(item.key, item.first, rows)
        if lacking:
            budget = self._pool.capacity if manager.limit is None else manager.limit
            text = (
                f"{rows} rows at {item.first} need {lacking} more blocks of {size} cells than there are: "
                f"{manager.held * size} of {budget * size} cells are in use"
            )
            return (FaultCode.OVERFLOW, text)
        if item.first < manager.length(item.key):
            manager.truncate(item.key, item.first)
        copies = manager.append(item.key, rows)
        try:
            self._cache.grow(self._pool.reach, self._pool.capacity)
        except (RuntimeError, MemoryError) as error:
            self.forget(item.key)
            return (FaultCode.OVERFLOW, f"no memory for more cells: {reason(error)}")
        for source, target in copies:
            self._cache.copy(source, target)
        return None

    def _outputs(self, items: Sequence[EngineSlice]) -> list[SliceOutput]:
        """When a pass fails each of its slices runs again by itself, so that one alone is to blame."""
        try:
            return [SliceOutput(rows) for rows in self._infer(items)]
        except Exception as error:
            if len(items) > 1:
                return [_copied(output) for item in items for output in self._outputs([item])]
            self.forget(items[0].key)  # nobody knows which layers have stored the rows
            return [_failed((FaultCode.EXCEPTION, f"inference failed: {reason(error)}"))]

    def _infer(self, items: Sequence[EngineSlice]) -> list[NDArray[np.float32]]:
        """Rows that were placed before; returns views of the output, one a slice."""
        is_last, inputs = self._shape.last_stage, self._inputs
        paged = PagedPass(tuple(self._part(item) for item in items))
        for name, values in paged.index_inputs().items():
            inputs[name].write(values)
        if "position_ids" in inputs:
            inputs["position_ids"].write(paged.positions())
        if is_last:
            inputs["logit_rows"].write(paged.logit_rows())
        self._write_rows(items, paged)
        self._request.infer(share_outputs=True)
        output: NDArray[np.float32] = self._request.get_output_tensor(0).data
        wanted = len(paged.logit_rows()) if is_last else paged.rows
        width = self._shape.vocabulary if is_last else self._shape.hidden
        if output.size != wanted * width or output.shape[-1] != width:
            raise RuntimeError(f"the output is {output.shape}, not {(wanted, width)}")
        return list(paged.split(output.reshape(wanted, width), logits=is_last))

    def _part(self, item: EngineSlice) -> Part:
        wanted = item.logit_rows if self._shape.last_stage else 0
        table = self._managers[item.key.chain].table(item.key)
        return Part(item.first, len(item.token_ids), table, wanted)

    def _write_rows(self, items: Sequence[EngineSlice], paged: PagedPass) -> None:
        """Straight into the input's memory, whatever type they came in."""
        first = self._shape.first_stage
        shape: Shape = (paged.rows,) if first else (paged.rows, self._shape.hidden)
        memory = self._inputs["input_ids" if first else "inputs_embeds"].opened(shape)
        for item, begin in zip(items, paged.begins(), strict=False):
            rows = memory[begin : begin + len(item.token_ids)]
            if item.hidden is None:
                rows[...] = item.token_ids
            else:
                rows[...] = item.hidden

    def _manager(self, chain: ChainId) -> BlockManager[SessionKey]:
        manager = self._managers.get(chain)
        if manager is None:
            manager = self._managers[chain] = BlockManager(self._pool, self._cache.block_size)
        return manager

    # --- loading ---------------------------------------------------------------------------------------

    def _step_inputs(self, compiled: ov.CompiledModel, xml: Path) -> dict[str, StepInput]:
        """Those that every pass writes. Raises FleetError when the model wants more than we know of."""
        ports = {port.get_any_name(): port for port in compiled.inputs}
        ports = {name: port for name, port in ports.items() if not name.startswith(CACHES)}
        rows = "input_ids" if self._shape.first_stage else "inputs_embeds"
        needed = {rows, *_INDEXES, *(["logit_rows"] if self._shape.last_stage else [])}
        missing, strange = needed - set(ports), set(ports) - needed - {"position_ids"}
        if missing or strange:
            text = f"has no input {_listed(missing)}" if missing else f"needs the inputs {_listed(strange)}"
            raise FleetError(f"{xml.name} cannot be run in pages: it {text}", hint=USE_MASKED)
        return {
            name: StepInput(port.get_element_type().to_dtype().type, partial(_place, self._request, port))
            for name, port in ports.items()
        }

    def _warm_up(self, xml: Path) -> None:
        """Prefill and decode once: buffers get allocated and the output's shape is proved."""
        rows = min(WARM_UP_ROWS, self._traits.cells - 1)
        for first, count in ((0, rows), (rows, 1)):
            hidden = None if self._shape.first_stage else np.ones((count, self._shape.hidden), np.float32)
            item = EngineSlice(_WARM_UP, first, np.zeros(count, dtype=np.int32), hidden, 1)
            (output,) = self.run([item])
            if output.fault is not None:
                raise FleetError(f"{xml.name} cannot be run in pages: {output.fault[1]}", hint=REBUILD)
        self.forget(_WARM_UP)


def _place(
    request: ov.InferRequest, port: ov.ConstOutput, memory: NDArray[np.number], shape: Shape
) -> ov.Tensor:
    tensor = ov.Tensor(memory, shared_memory=True)
    tensor.shape = shape
    request.set_tensor(port, tensor)
    return tensor


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _without_repeats(slices: Sequence[EngineSlice]) -> Iterator[list[EngineSlice]]:
    """Slices in order, cut where a session comes a second time."""
    group: list[EngineSlice] = []
    seen: set[SessionKey] = set()
    for item in slices:
        if item.key in seen:
            yield group
            group, seen = [], set()
        group.append(item)
        seen.add(item.key)
    yield group


def _copied(output: SliceOutput) -> SliceOutput:
    return SliceOutput(output.rows.copy(), output.fault)


def _failed(fault: Fault) -> SliceOutput:
    return SliceOutput(np.zeros((0, 0), dtype=np.float32), fault)
