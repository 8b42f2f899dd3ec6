"""Chains of real engines over the tiny random model, cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetchat.engine.masked import MaskedEngine
from fleetchat.engine.paged import PagedEngine
from tests.engine.conformance import Chain
from tests.tiny_model import TinyShape, write_tiny_stage

SHAPE = TinyShape()
CONTEXT = 512
ONE_STAGE = ((0, 3),)
THREE_STAGES = ((0, 0), (1, 2), (3, 3))
Cuts = Sequence[tuple[int, int]]  # first and last layer of each stage


def masked_engine(folder: Path, first_layer: int, last_layer: int, **changes: Any) -> MaskedEngine:
    """Every state is its own compaction step."""
    arguments = _arguments(first_layer, last_layer) | {
        "context": CONTEXT,
        "kv_values_per_cell": (last_layer - first_layer + 1) * SHAPE.kv_values_per_layer,
        "compaction_bytes": 1,
    }
    return MaskedEngine(_stage(folder, first_layer, last_layer), **(arguments | changes))


def paged_engine(folder: Path, first_layer: int, last_layer: int, **changes: Any) -> PagedEngine:
    arguments = _arguments(first_layer, last_layer) | {"attention_layers": last_layer - first_layer + 1}
    return PagedEngine(_stage(folder, first_layer, last_layer), **(arguments | changes))


def masked_chain(folder: Path, cuts: Cuts = ONE_STAGE, **changes: Any) -> Chain:
    return [masked_engine(folder, first, last, **changes) for first, last in cuts]


def paged_chain(folder: Path, cuts: Cuts = ONE_STAGE, **changes: Any) -> Chain:
    return [paged_engine(folder, first, last, **changes) for first, last in cuts]


def emptied(chain: Chain) -> Iterator[Chain]:
    """The body of a fixture: a chain that others use after this test."""
    yield chain
    for engine in chain:
        for key in engine.sessions():
            engine.forget(key)


def _stage(folder: Path, first_layer: int, last_layer: int) -> Path:
    xml = folder / f"stage_{first_layer}_{last_layer}.xml"
    if not xml.exists():
        write_tiny_stage(xml, first_layer, last_layer)
    return xml


def _arguments(first_layer: int, last_layer: int) -> dict[str, Any]:
    return {
        "first_stage": first_layer == 0,
        "last_stage": last_layer == SHAPE.layers - 1,
        "hidden": SHAPE.hidden,
        "vocabulary": SHAPE.vocabulary,
        "precision": "exact",
        "threads": 1,
        "cells": 4096,
    }
