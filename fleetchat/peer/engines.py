"""The engine for a shard. OpenVINO is imported here, at the first OPEN: a peer listens long before that."""

from __future__ import annotations

from fleetchat.engine.interface import StageEngine
from fleetchat.peer.loading import EngineRequest


def create_engine(request: EngineRequest) -> StageEngine:
    """Load and warm up; takes seconds. Raises FleetchatError, or whatever OpenVINO raises."""
    from fleetchat.engine.masked import MaskedEngine

    return MaskedEngine(
        request.xml,
        first_stage=request.entry.index == 0,
        last_stage=request.entry.index == len(request.manifest.stages) - 1,
        hidden=request.manifest.hidden,
        vocabulary=request.manifest.vocabulary,
        precision=request.precision,
        threads=request.threads,
        context=request.manifest.context,
        kv_values_per_cell=request.entry.kv_values_per_cell,
        cells=request.cells,
        device=request.device,
        attention_layers=request.entry.attention_layers,
    )
