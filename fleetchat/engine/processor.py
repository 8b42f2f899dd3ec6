"""What OpenVINO says of a device: its name, and what it can compute in."""

from __future__ import annotations

from typing import NamedTuple

import openvino as ov


class Processor(NamedTuple):
    """`capabilities` as OpenVINO spells them: FP32, BF16, INT8…"""

    name: str
    capabilities: frozenset[str]


def processor(device: str) -> Processor:
    """Raises RuntimeError when there is no such device."""
    core = ov.Core()
    capabilities = core.get_property(device, "OPTIMIZATION_CAPABILITIES")
    return Processor(str(core.get_property(device, "FULL_DEVICE_NAME")).strip(), frozenset(capabilities))
