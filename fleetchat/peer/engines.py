"""The engine for a shard. OpenVINO is imported here, at the first OPEN: a peer listens long before that."""

from __future__ import annotations

from fleetchat.engine.huge_pages import use_huge_pages
from fleetchat.engine.interface import StageEngine
from fleetchat.engine.refusal import StageShape
from fleetchat.engine.self_check import self_check
from fleetchat.errors import FleetError
from fleetchat.peer.loading import EngineRequest


def create_engine(request: EngineRequest) -> StageEngine:
    """Load, warm up and check; takes seconds. Raises FleetchatError, or whatever OpenVINO raises."""
    shape = StageShape(
        first_stage=request.entry.index == 0,
        last_stage=request.entry.index == len(request.manifest.stages) - 1,
        hidden=request.manifest.hidden,
        vocabulary=request.manifest.vocabulary,
    )
    engine = _paged(request, shape) if request.engine == "paged" else _masked(request, shape)
    wrong = self_check(engine, shape, request.precision)
    if wrong is not None:
        engine.close()
        raise FleetError(
            f"the {request.engine} engine failed its self-check on {request.device}: {wrong}",
            hint=f"use --kv {'masked' if request.engine == 'paged' else 'paged'}",
        )
    if request.device == "CPU":
        use_huge_pages()
    return engine


def _masked(request: EngineRequest, shape: StageShape) -> StageEngine:
    from fleetchat.engine.masked import MaskedEngine

    return MaskedEngine(
        request.xml,
        first_stage=shape.first_stage,
        last_stage=shape.last_stage,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        precision=request.precision,
        threads=request.threads,
        context=request.manifest.context,
        kv_values_per_cell=request.entry.kv_values_per_cell,
        cells=request.cells,
        device=request.device,
        attention_layers=request.entry.attention_layers,
    )


def _paged(request: EngineRequest, shape: StageShape) -> StageEngine:
    from fleetchat.engine.paged import PagedEngine

    return PagedEngine(
        request.xml,
        first_stage=shape.first_stage,
        last_stage=shape.last_stage,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        precision=request.precision,
        threads=request.threads,
        cells=request.cells,
        device=request.device,
        attention_layers=request.entry.attention_layers,
    )


def time_layer(
    hidden: int, intermediate: int, rows: int, *, device: str, threads: int
) -> tuple[float, float]:
    """Seconds that a layer takes here, for one row and for `rows`. Raises whatever OpenVINO raises."""
    from fleetchat.engine import layer_probe

    return layer_probe.time_layer(hidden, intermediate, rows, device=device, threads=threads)
