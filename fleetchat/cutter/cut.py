"""Cut a whole model file into stage files: the one call that a build makes, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import openvino as ov

from fleetchat.cutter.boundary import Layers, find_layers
from fleetchat.cutter.costs import Costs, find_costs
from fleetchat.cutter.fusion import fused_attention, inject_fusion
from fleetchat.cutter.graph import build_stage
from fleetchat.cutter.ir_file import save_ir
from fleetchat.cutter.obstacle import find_obstacle
from fleetchat.cutter.partition import LayerRange, check_ranges, partition, stage_costs
from fleetchat.cutter.plan import plan_stage
from fleetchat.cutter.tuning import tune
from fleetchat.cutter.view import GraphView, view_of
from fleetchat.cutter.window import find_window
from fleetchat.errors import CutRefused, SourceError

OnProgress = Callable[[str, int, int], None]  # what is done now, steps done, steps in all


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the graph alone tells of a model.

    Costs are in weight values touched per token. `weight_bytes` are stored bytes: embedding, each layer,
    head. `window` is the smallest sliding window found, 0 = none. `recurrent`: a state does not grow with
    the tokens, as that of a convolution or a state-space layer, so it cannot be taken back. `obstacle` says
    why some layers cannot be parted, None = all can.
    """

    layers: int
    hidden: int
    vocabulary: int
    layer_costs: tuple[int, ...]
    head_cost: int
    embedding_cost: int
    weight_bytes: tuple[int, ...]
    window: int
    recurrent: bool
    obstacle: str | None


@dataclass(frozen=True, slots=True)
class CutStage:
    """One stage as written; the fields are those of manifest.StageEntry, with paths for stored files."""

    index: int
    first_layer: int
    last_layer: int
    xml: Path
    bin: Path
    inputs: tuple[str, ...]
    kv_shapes: tuple[tuple[int, int], ...]
    attention_layers: int
    fused_layers: int
    cost: int


@dataclass(frozen=True, slots=True)
class CutResult:
    """What a cut produced. `tuned`: linear layers were rewritten (`tuning`)."""

    shape: ModelShape
    stages: tuple[CutStage, ...]
    tuned: bool = False


def read_whole(core: ov.Core, whole_xml: Path) -> ov.Model:
    """Read a whole model, with what its attention needs to fuse added where it is missing."""
    try:
        model = core.read_model(whole_xml)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise SourceError(f"{whole_xml.name} cannot be read as an OpenVINO model: {reason}") from error
    inject_fusion(model)
    return model


def describe(whole_xml: Path) -> ModelShape:
    """Layers, widths and costs of a model file. Raises SourceError or CutRefused."""
    core = ov.Core()
    view = view_of(read_whole(core, whole_xml))
    return _shape(core, whole_xml, view, find_layers(view))


def cut_model(
    whole_xml: Path,
    folder: Path,
    *,
    stages: int | None,
    ranges: tuple[LayerRange, ...] | None,
    on_progress: OnProgress,
    only: Collection[int] | None = None,
    tuned: bool = False,
) -> CutResult:
    """Write `stage-00.xml`, `stage-00.bin`, … into `folder`.

    Give either a number of `stages`, balanced by cost, or explicit layer `ranges`. `only` writes no more than
    the stages of these numbers. `tuned` rewrites the linear layers of the stages, which takes the memory of
    a stage, unless attention would not fuse then. Every stage is compiled once to prove that it does. Raises
    CutRefused when the model cannot be cut so, SourceError when the file is no model.
    """
    core = ov.Core()
    on_progress("reading the model", 0, 1)
    view = view_of(read_whole(core, whole_xml))
    layers = find_layers(view)
    shape = _shape(core, whole_xml, view, layers)
    chosen = _choose(shape, stages, ranges)
    costs = stage_costs(chosen, shape.layer_costs, shape.head_cost, shape.embedding_cost)
    written = []
    changed = False
    for index, (first, last) in enumerate(chosen):
        if only is not None and index not in only:
            continue
        on_progress(f"cutting layers {first} to {last}", index, len(chosen))
        plan = plan_stage(view, layers, first, last)
        xml = folder / f"stage-{index:02}.xml"
        model = build_stage(lambda: read_whole(core, whole_xml), view, layers, plan)
        changed |= tuned and tune(model) > 0
        save_ir(model, xml)
        del model
        written.append(_stage(core, view, index, (first, last), xml, plan.variables, costs[index]))
        if changed and written[-1].fused_layers < written[-1].attention_layers:
            return cut_model(
                whole_xml, folder, stages=stages, ranges=ranges, on_progress=on_progress, only=only
            )
    on_progress("cut", len(chosen), len(chosen))
    return CutResult(shape, tuple(written), changed)


def _shape(core: ov.Core, whole_xml: Path, view: GraphView, layers: Layers) -> ModelShape:
    costs: Costs = find_costs(view, layers)
    return ModelShape(
        layers=layers.count,
        hidden=layers.hidden,
        vocabulary=layers.vocabulary,
        layer_costs=costs.layers,
        head_cost=costs.head,
        embedding_cost=costs.embedding,
        weight_bytes=costs.weight_bytes,
        window=find_window(core, lambda: read_whole(core, whole_xml), view),
        recurrent=any(_kv_shape(view, variable) is None for variable in view.read_values),
        obstacle=find_obstacle(view, layers),
    )


def _choose(
    shape: ModelShape, stages: int | None, ranges: Sequence[LayerRange] | None
) -> tuple[LayerRange, ...]:
    if ranges is not None:
        if stages is not None and stages != len(ranges):
            raise CutRefused(f"{stages} stages were asked for, but {len(ranges)} layer ranges were given")
        return check_ranges(ranges, shape.layers)
    if stages is None:
        raise CutRefused("neither a number of stages nor layer ranges were given")
    if stages > shape.layers and shape.obstacle is not None:
        raise CutRefused(
            f"the model cannot be cut into {stages} stages, only into {shape.layers}: {shape.obstacle}",
            hint=f"use --stages {shape.layers}",
        )
    return partition(shape.layer_costs, shape.head_cost, shape.embedding_cost, stages)


def _stage(
    core: ov.Core,
    view: GraphView,
    index: int,
    layers: LayerRange,
    xml: Path,
    variables: Sequence[str],
    cost: int,
) -> CutStage:
    """Read a written stage back, compile it and describe it."""
    model = core.read_model(xml)
    attention = sum(node.get_type_name() == "ScaledDotProductAttention" for node in model.get_ops())
    inputs = tuple(port.any_name for port in model.inputs)
    _, fused = fused_attention(core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}))
    return CutStage(
        index=index,
        first_layer=layers[0],
        last_layer=layers[1],
        xml=xml,
        bin=xml.with_suffix(".bin"),
        inputs=inputs,
        kv_shapes=_kv_shapes(view, variables),
        attention_layers=attention,
        fused_layers=fused,
        cost=cost,
    )


def _kv_shapes(view: GraphView, variables: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """(heads, head size) of each state that grows with the tokens."""
    shapes = (_kv_shape(view, variable) for variable in variables)
    return tuple(shape for shape in shapes if shape is not None)


def _kv_shape(view: GraphView, variable: str) -> tuple[int, int] | None:
    """A state that grows has two dynamic and two static axes."""
    shape = view[view.read_values[variable]].shape or ()
    sizes = [size for size in shape if size >= 0]
    return (sizes[0], sizes[1]) if len(shape) == 4 and len(sizes) == 2 else None
