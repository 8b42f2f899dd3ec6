"""The two precision profiles: what is handed to OpenVINO and what travels on the wire.

`exact` gives the same text for the same seed on every path; `fast` is what measures fastest on the machine
(see `fast_settings`). bf16 is never taken with one thread: with an uncompressed model it ends the process by
SIGFPE (openvino issue 33300).
"""

from __future__ import annotations

from enum import StrEnum

from fleetchat.engine.fast_settings import DEFAULT, FastSettings
from fleetchat.wire.frames import WireDtype

F16_SAFE_ACTIVATION = 3e4  # the largest f16 is 65,504; half of it is left for prompts the build has not seen


class Precision(StrEnum):
    """The value is what the command line, the configuration and OPEN say."""

    EXACT = "exact"
    FAST = "fast"


def openvino_config(
    precision: Precision | str, threads: int, *, device: str = "CPU", fast: FastSettings = DEFAULT
) -> dict[str, object]:
    """The full property set for one `compile_model`.

    Always the full set: what is left out is taken from the model's rt_info or from the plugin's
    defaults, which differ between a cut model and the whole one. Devices other than the CPU refuse the
    properties about threads. `fast` is for that precision alone.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    exact = Precision(precision) is Precision.EXACT
    if not exact and fast.compute != "f32" and threads == 1:
        raise ValueError(f"{fast.compute} with one thread may end the process")
    config: dict[str, object] = {
        "INFERENCE_PRECISION_HINT": "f32" if exact else fast.compute,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0 if exact else fast.group,
        "KV_CACHE_PRECISION": "f32" if exact else "u8",
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    if device == "CPU":
        config["ENABLE_CPU_PINNING"] = False
        config["INFERENCE_NUM_THREADS"] = threads
    return config


def wire_dtype(precision: Precision | str, largest_activation: float) -> WireDtype:
    """How hidden rows travel: f32 for `exact`, and for `fast` where f16 might overflow."""
    if Precision(precision) is Precision.EXACT or not largest_activation <= F16_SAFE_ACTIVATION:
        return WireDtype.F32
    return WireDtype.F16
