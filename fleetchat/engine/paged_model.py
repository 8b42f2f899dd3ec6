"""A stateful shard becomes a paged one when it is loaded: the files are the same for both engines."""

from __future__ import annotations

from pathlib import Path

import openvino as ov
from openvino._offline_transformations import paged_attention_transformation

from fleetchat.engine.warm_up import REBUILD, reason
from fleetchat.errors import FleetError

USE_MASKED = "use --kv masked"


def paged_model(xml: Path, hidden: int, *, first_stage: bool) -> ov.Model:
    """The shard with PagedAttention in place of state and attention."""
    try:
        model = ov.Core().read_model(str(xml))
        paged_attention_transformation(model)
        if not first_stage:
            model.input("inputs_embeds").get_node().set_partial_shape(ov.PartialShape([-1, hidden]))
        model.validate_nodes_and_infer_types()
    except RuntimeError as error:
        text = f"{xml.name} cannot be run in pages: {reason(error)}"
        raise FleetError(text, hint=f"{USE_MASKED}, or build the shards again") from error
    if model.get_sinks():
        raise FleetError(f"{xml.name} keeps state that has no pages", hint=USE_MASKED)
    return model


def compiled_on(model: ov.Model, xml: Path, device: str, config: dict[str, object]) -> ov.CompiledModel:
    if device != "CPU":  # other devices lay blocks out otherwise
        raise FleetError(f"the paged engine runs on CPU, not on {device}", hint=USE_MASKED)
    try:
        return ov.Core().compile_model(model, device, config)
    except RuntimeError as error:
        raise FleetError(f"cannot load {xml.name} on {device}: {reason(error)}", hint=REBUILD) from error
