"""The self-check of a model that is too large to be loaded whole: one stage in memory at a time.

A stage's output depends on the stages before it only through the rows that it gets. So the chain is proved
stage by stage. *Same graph*: the stage, fed with what layer 0 puts out, says what the same layers say behind
layer 0 inside the whole model's own graph (`skeleton`): 0.0. *Same mathematics* and *rollback*: the prompt in
other chunks with gathered rows, and wrong drafts that are hidden, are runs of their own. Every run passes
through one stage before the next one is loaded, and is compared with the run that has all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from fleetchat.cutter.boundary import find_layers
from fleetchat.cutter.cut import read_whole
from fleetchat.cutter.manifest import SelfCheck
from fleetchat.cutter.partition import LayerRange
from fleetchat.cutter.selfcheck import (
    TAIL,
    UNUSABLE,
    WRONG,
    OnProgress,
    chunks,
    difference,
    exact_config,
    judged,
    prompt_length,
    tolerance_for,
)
from fleetchat.cutter.skeleton import skeleton_of
from fleetchat.cutter.trial import FloatArray, IntArray, Trial
from fleetchat.cutter.view import view_of
from fleetchat.errors import BuildError

Rows = list[FloatArray | None]  # what each step of a run carries into the next stage; None: tokens only


@dataclass(frozen=True, slots=True)
class Step:
    """Rows that are fed at once, the first of them at logical position `first`.

    The logits of `wanted` (indexes into them) are asked for; then the newest `hide` rows are rolled back.
    """

    ids: IntArray
    first: int
    wanted: IntArray
    hide: int = 0


Run = tuple[Step, ...]


def ids_needed(window: int) -> int:
    """Tokens that the check feeds."""
    return prompt_length(window) + sum(TAIL)


def stagewise_check(
    whole_xml: Path,
    stages: Sequence[tuple[Path, LayerRange]],
    ids: IntArray,
    *,
    window: int = 0,
    threads: int | None = None,
    on_progress: OnProgress = lambda step, done, total: None,
) -> SelfCheck:
    """As `selfcheck.self_check`, for stages with their layers. `ids` are any `ids_needed` tokens.

    Raises BuildError when the chain is not the whole model.
    """
    core = ov.Core()
    config = exact_config(threads)
    runs = (_reference_run(ids, window), _gathered_run(ids, window), _rollback_run(ids, window))
    carried: list[Rows] = [[None] * len(run) for run in runs]
    same_graph = largest = 0.0
    for index, (xml, layers) in enumerate(stages):
        on_progress(f"comparing layers {layers[0]} to {layers[1]} with the whole", index, len(stages))
        entering, expected = _in_the_whole(core, config, whole_xml, layers, runs[0])
        stage = core.compile_model(core.read_model(xml), "CPU", config)
        found = _passed(stage, runs[0], entering)
        same_graph = max(same_graph, *map(_distance, found, expected))
        del entering, found, expected
        carried = [_passed(stage, run, rows) for run, rows in zip(runs, carried, strict=True)]
        del stage
        if index < len(stages) - 1:
            largest = max(largest, *(_largest(rows) for run in carried for rows in run))
    on_progress("compared", len(stages), len(stages))
    reference = np.concatenate([_rows(one) for one in carried[0]])
    apart = [
        max(
            difference(_rows(rows), reference[step.first + step.wanted])
            for step, rows in zip(run, carried[number], strict=True)
        )
        for number, run in enumerate(runs)
    ]
    check = SelfCheck(same_graph, apart[1], apart[2], True, min(largest, UNUSABLE))
    return judged(check, tolerance_for(reference), window)


def same_graph(
    whole_xml: Path, stage_xml: Path, layers: LayerRange, ids: IntArray, *, threads: int | None = None
) -> float:
    """The largest difference between one stage and its layers in the whole graph: 0.0, or the cut is wrong.

    Takes the memory of one stage, whatever the whole is. Of the stage's output only; the logits of the last.
    """
    core, config, run = ov.Core(), exact_config(threads), _reference_run(ids, 0)
    entering, expected = _in_the_whole(core, config, whole_xml, layers, run)
    found = _passed(core.compile_model(core.read_model(stage_xml), "CPU", config), run, entering)
    return max(map(_distance, found, expected))


def _in_the_whole(
    core: ov.Core, config: dict[str, Any], whole_xml: Path, layers: LayerRange, run: Run
) -> tuple[Rows, Rows]:
    """What enters the first of these layers behind layer 0 of the whole graph, and what leaves the last."""
    model = read_whole(core, whole_xml)
    view = view_of(model)
    skeleton = skeleton_of(model, view, find_layers(view), *layers)
    has_entry = len(skeleton.outputs) > 1
    trial = Trial([core.compile_model(skeleton, "CPU", config)])
    del model, skeleton
    entering: Rows = []
    leaving: Rows = []
    for step in run:
        outputs = trial.outputs(step.ids)
        entering.append(outputs[0] if has_entry else None)
        leaving.append(outputs[-1])
    return entering, leaving


def _passed(stage: ov.CompiledModel, run: Run, entering: Rows) -> Rows:
    """What a stage puts out for each step: all rows, or the logits of those wanted."""
    trial = Trial([stage])
    leaving: Rows = []
    for step, rows in zip(run, entering, strict=True):
        leaving.append(trial.feed(step.ids, step.wanted if _has_head(stage) else None, rows))
        if step.hide:
            trial.hide(step.hide)
    return leaving


def _has_head(stage: ov.CompiledModel) -> bool:
    return any(port.any_name == "logit_rows" for port in stage.inputs)


def _reference_run(ids: IntArray, window: int) -> Run:
    """All rows, the prompt at once."""
    sizes = (prompt_length(window), *TAIL)
    return tuple(Step(chunk, first, np.arange(len(chunk))) for first, chunk in _placed(ids, sizes))


def _gathered_run(ids: IntArray, window: int) -> Run:
    """The prompt in two chunks with one row wanted of each, then K + 1 rows and single rows."""
    prompt = prompt_length(window)
    sizes = (prompt - prompt // 2, prompt // 2, *reversed(TAIL))
    return tuple(
        Step(chunk, first, np.array([len(chunk) - 1]) if first < prompt else np.arange(len(chunk)))
        for first, chunk in _placed(ids, sizes)
    )


def _rollback_run(ids: IntArray, window: int) -> Run:
    """Wrong drafts are fed and hidden, once in each part behind the prompt."""
    prompt, only = prompt_length(window), np.array([0])
    steps = [Step(ids[:prompt], 0, np.array([prompt - 1]))]
    for first, right in _placed(ids[prompt:], TAIL):
        begin = prompt + first
        steps.append(Step(np.concatenate([right[:1], ids[:WRONG]]), begin, only, WRONG))
        steps += [Step(right[index : index + 1], begin + index, only) for index in range(1, len(right))]
    return tuple(steps)


def _placed(ids: IntArray, sizes: Sequence[int]) -> Iterator[tuple[int, IntArray]]:
    first = 0
    for chunk in chunks(ids, sizes):
        yield first, chunk
        first += len(chunk)


def _distance(ours: FloatArray | None, theirs: FloatArray | None) -> float:
    return difference(_rows(ours), _rows(theirs))


def _largest(rows: FloatArray | None) -> float:
    values = _rows(rows)
    return float(np.abs(values).max()) if np.isfinite(values).all() else UNUSABLE


def _rows(rows: FloatArray | None) -> FloatArray:
    if rows is None:
        raise BuildError("a stage was given tokens only, where rows of hidden values were expected")
    return rows
