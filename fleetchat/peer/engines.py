"""The engine for a shard. OpenVINO is imported here, at the first OPEN: a peer listens long before that."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial

from fleetchat.engine.fast_settings import DEFAULT, Choice, FastSettings, Timing, candidates
from fleetchat.engine.huge_pages import use_huge_pages
from fleetchat.engine.interface import StageEngine
from fleetchat.engine.precision import Precision
from fleetchat.engine.refusal import StageShape
from fleetchat.engine.self_check import self_check
from fleetchat.engine.settings_record import Records, SettingsKey
from fleetchat.engine.settling import settle
from fleetchat.engine.stage_timing import CELLS, time_stage
from fleetchat.errors import FleetError, InputError
from fleetchat.ids import Rollback
from fleetchat.paths import settings_folder
from fleetchat.peer.loading import EngineRequest, loading_words
from fleetchat.peer.report import openvino_version

VARIABLE = "FLEETCHAT_FAST_SETTINGS"
LARGE_SHARD = 1 << 30  # bytes, beyond which settings are timed on two matrices instead of all
BYTES_OF_8_BITS = 0.8  # for each value that a token touches: less is 4 bits
MEASURING = "measuring the fastest settings"
EXACT = "f32, activations not quantised (exact: nothing is chosen)"


def create_engine(request: EngineRequest) -> StageEngine:
    """Load, warm up and check; takes seconds. Raises FleetchatError, or whatever OpenVINO raises.

    In `fast` the first load of a model on this machine measures which settings are the fastest.
    """
    workshop = _Workshop(request)
    choice = _choice(request, workshop)
    if workshop.has_measured:
        request.on_step(loading_words(request.entry))
    engine = workshop.take(choice.settings)
    wrong = workshop.fault(engine, request.precision)
    if wrong is not None:
        engine.close()
        raise FleetError(
            f"the {request.engine} engine failed its self-check on {request.device}: {wrong}",
            hint=f"use --kv {'masked' if request.engine == 'paged' else 'paged'}",
        )
    if request.device == "CPU":
        use_huge_pages()
    request.on_settings(str(choice) if _is_fast(request) else EXACT)
    return engine


def settled(request: EngineRequest) -> Choice:
    """The settings that `create_engine` takes; they are measured when nobody did so before."""
    workshop = _Workshop(request)
    try:
        return _choice(request, workshop)
    finally:
        workshop.close()


def is_measuring(environment: Mapping[str, str]) -> bool:
    """Whether settings are to be measured. Raises InputError."""
    said = environment.get(VARIABLE, "measure")
    if said not in ("measure", "default"):
        raise InputError(f"{VARIABLE} is measure or default, not {said!r}")
    return said == "measure"


def _choice(request: EngineRequest, workshop: _Workshop) -> Choice:
    if not _is_fast(request):
        return Choice(DEFAULT, "exact")
    if not is_measuring(os.environ):
        return Choice(DEFAULT, f"not measured: {VARIABLE}=default")
    if request.device != "CPU":
        return Choice(DEFAULT, f"not measured on {request.device}")
    if min(request.manifest.context, CELLS if request.cells is None else request.cells) < CELLS:
        return Choice(DEFAULT, f"not measured: that takes {CELLS} cells")
    from fleetchat.engine.processor import processor

    name, capabilities = processor(request.device)
    key = SettingsKey(
        processor=name,
        openvino=openvino_version(),
        device=request.device,
        threads=request.threads,
        model=request.manifest.source,
        converter=request.manifest.converter,
    )
    possible = candidates(request.threads, _cores_of_process(), capabilities)
    is_large = request.entry.bin.size > LARGE_SHARD
    time_one = partial(_time_matrices, request) if is_large else workshop.time
    return settle(key, Records(settings_folder()), possible, time_one, workshop.begin_measuring)


def _time_matrices(request: EngineRequest, settings: FastSettings) -> Timing:
    from fleetchat.engine.layer_probe import time_settings

    four_bits = request.entry.bin.size < BYTES_OF_8_BITS * request.entry.cost
    return time_settings(request.manifest.hidden, settings, four_bits=four_bits, threads=request.threads)


class _Workshop:
    """Makes engines of one shard. There is only one at a time, for memory's sake.

    The last that was timed is handed out when it is the one that is wanted.
    """

    def __init__(self, request: EngineRequest) -> None:
        self._request = request
        self.shape = StageShape(
            first_stage=request.entry.index == 0,
            last_stage=request.entry.index == len(request.manifest.stages) - 1,
            hidden=request.manifest.hidden,
            vocabulary=request.manifest.vocabulary,
        )
        self._timed: set[FastSettings] = set()
        self.has_measured = False
        self._made: tuple[FastSettings, StageEngine] | None = None

    def begin_measuring(self) -> None:
        self.has_measured = True
        self._request.on_step(MEASURING)

    def time(self, settings: FastSettings) -> Timing:
        """Raises FleetError when the engine fails its self-check, or whatever OpenVINO raises."""
        if settings == DEFAULT or settings in self._timed:  # likely to be kept
            engine = self._engine(settings)
        else:
            engine = self._make(settings, CELLS)
            if settings.compute != "f32" and (wrong := self.fault(engine, Precision.FAST)):
                raise FleetError(wrong)
        self._timed.add(settings)
        return time_stage(engine, self.shape, time.perf_counter)

    def fault(self, engine: StageEngine, precision: Precision | str) -> str | None:
        """What the engine's self-check finds wrong."""
        rolls_back = self._request.manifest.rollback is not Rollback.RESTART
        return self_check(engine, self.shape, precision, rolls_back=rolls_back)

    def take(self, settings: FastSettings) -> StageEngine:
        """The engine for good; it belongs to the caller."""
        engine = self._engine(settings)
        self._made = None
        return engine

    def close(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None

    def _engine(self, settings: FastSettings) -> StageEngine:
        """With all cells of the request."""
        if self._made is not None and self._made[0] == settings:
            return self._made[1]
        engine = self._make(settings, self._request.cells)
        self._made = (settings, engine)
        return engine

    def _make(self, settings: FastSettings, cells: int | None) -> StageEngine:
        self.close()
        make = _paged if self._request.engine == "paged" else _masked
        return make(self._request, self.shape, settings, cells)


def _is_fast(request: EngineRequest) -> bool:
    return Precision(request.precision) is Precision.FAST


def _cores_of_process() -> int:
    """An OpenVINO that is pinned to one core runs with one thread, whatever it is told."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _masked(
    request: EngineRequest, shape: StageShape, settings: FastSettings, cells: int | None
) -> StageEngine:
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
        cells=cells,
        sharers=request.sharers,
        device=request.device,
        attention_layers=request.entry.fused_layers,
        fast=settings,
        rollback=request.manifest.rollback,
    )


def _paged(
    request: EngineRequest, shape: StageShape, settings: FastSettings, cells: int | None
) -> StageEngine:
    from fleetchat.engine.paged import PagedEngine

    return PagedEngine(
        request.xml,
        first_stage=shape.first_stage,
        last_stage=shape.last_stage,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        precision=request.precision,
        threads=request.threads,
        cells=cells,
        sharers=request.sharers,
        device=request.device,
        attention_layers=len(request.entry.kv_shapes) // 2,  # keys and values; others share them
        fast=settings,
    )


def time_layer(
    hidden: int, intermediate: int, rows: int, *, device: str, threads: int
) -> tuple[float, float]:
    """Seconds that a layer takes here, for one row and for `rows`. Raises whatever OpenVINO raises."""
    from fleetchat.engine import layer_probe

    return layer_probe.time_layer(hidden, intermediate, rows, device=device, threads=threads)
