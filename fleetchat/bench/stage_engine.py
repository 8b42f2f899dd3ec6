"""A stage's engine in this process: the class, the settings and the thread that a peer uses.

What it leaves out of a peer are sockets and frames, which is what the measurements with it leave out too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from fleetchat.bench.subject import Subject
from fleetchat.engine.huge_pages import use_huge_pages
from fleetchat.engine.interface import EngineSlice
from fleetchat.engine.masked import MaskedEngine
from fleetchat.errors import FleetError
from fleetchat.ids import ChainId, SessionId, SessionKey

CELLS = 1 << 17  # more than any measurement takes; memory is taken as rows come


States = dict[str, NDArray[np.floating]]  # by the name of the state


class OpenEngine(MaskedEngine):
    """The engine with its states in reach: they can be saved, put back, and cut as others cut them."""

    def states(self, session: int, length: int) -> States:
        """A copy of the first `length` cells, which must all be live."""
        return {
            state.name: self._first_cells(state, length)
            for state in self._sessions[key_of(session)].request.query_state()
        }

    def repeated(self, states: States, times: int) -> States:
        """The same cells `times` times in a row: for a timing it does not matter what is in them."""
        return {
            name: np.concatenate([values] * times, axis=self._layout.axes[name])
            for name, values in states.items()
        }

    def restore(self, session: int, states: States, length: int) -> None:
        """Make the first `length` cells of `states` all that the session holds."""
        self.forget(key_of(session))
        held = self._sessions[key_of(session)] = self._new_session()
        for state in held.request.query_state():
            kept = self._cut_to(states[state.name], state.name, length)
            state.state = ov.Tensor(np.ascontiguousarray(kept), shared_memory=True)
        held.ledger.append(length)

    def trim(self, session: int, length: int) -> None:
        """Read every state, keep its first `length` cells, which are all live, and write it back."""
        held = self._sessions[key_of(session)]
        for state in held.request.query_state():
            state.state = ov.Tensor(self._first_cells(state, length), shared_memory=True)
        held.ledger.truncate(length)
        held.ledger.compacted()

    def _first_cells(self, state: ov.VariableState, length: int) -> NDArray[np.floating]:
        return np.ascontiguousarray(self._cut_to(state.state.data, state.name, length))

    def _cut_to(self, values: NDArray[np.floating], name: str, length: int) -> NDArray[np.floating]:
        cut: NDArray[np.floating] = values[(slice(None),) * self._layout.axes[name] + (slice(0, length),)]
        return cut


def key_of(session: int) -> SessionKey:
    return SessionKey(ChainId("bench"), SessionId(session))


def load_stage(
    subject: Subject,
    index: int,
    precision: str,
    *,
    xml: Path | None = None,
    attention_layers: int | None = None,
) -> OpenEngine:
    """Stage `index` with one thread; `xml` and `attention_layers` replace what the manifest says."""
    manifest = subject.manifest
    entry = manifest.stages[index]
    engine = OpenEngine(
        xml or subject.store.stage_xml(manifest, index),
        first_stage=index == 0,
        last_stage=index == len(manifest.stages) - 1,
        hidden=manifest.hidden,
        vocabulary=manifest.vocabulary,
        precision=precision,
        threads=1,
        context=manifest.context,
        kv_values_per_cell=entry.kv_values_per_cell,
        cells=CELLS,
        attention_layers=entry.attention_layers if attention_layers is None else attention_layers,
        fast=subject.fast,
    )
    use_huge_pages()
    return engine


def feed(
    engine: MaskedEngine,
    session: int,
    first: int,
    token_ids: Sequence[int] | NDArray[np.int32],
    hidden: NDArray[np.floating] | None = None,
    logit_rows: int = 0,
) -> NDArray[np.float32]:
    """Run rows of one session at logical positions `first`…; a view that the next run overwrites.

    Raises FleetError.
    """
    ids = np.asarray(token_ids, dtype=np.int32)
    (output,) = engine.run([EngineSlice(key_of(session), first, ids, hidden, logit_rows)])
    if output.fault is not None:
        raise FleetError(f"a stage failed: {output.fault[1]}")
    return output.rows
