"""Run as a process of its own: what OpenVINO finds and does here, as one line of JSON.

In a process of its own, because OpenVINO ends the process that meets a processor or driver it cannot use.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fleetchat.engine.precision import Precision, openvino_config


def main(threads: int) -> None:
    """Print the devices, and what each makes of the two precision profiles."""
    import openvino as ov

    core = ov.Core()
    devices = [_device(core, name, threads) for name in core.available_devices]
    print(json.dumps({"version": ov.__version__, "devices": devices}), flush=True)


def _device(core: Any, name: str, threads: int) -> dict[str, object]:
    error, settings = "", {}
    try:
        for precision in Precision:
            settings[precision.value] = _settings(core, name, precision, threads)
    except Exception as failure:  # whatever a driver raises
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        error = lines[-1] if lines else type(failure).__name__
    return {
        "name": name,
        "full_name": str(_property(core, name, "FULL_DEVICE_NAME")),
        "capabilities": [str(one) for one in _property(core, name, "OPTIMIZATION_CAPABILITIES") or []],
        "settings": settings,
        "error": error,
    }


def _settings(core: Any, device: str, precision: Precision, threads: int) -> dict[str, str]:
    """Compile and run a small model; the properties that the device then has."""
    config = openvino_config(precision, threads, device=device)
    compiled = core.compile_model(_small_model(), device, config)
    compiled.create_infer_request().infer({0: _ones()})
    return {
        key: str(compiled.get_property(key)).removeprefix("<Type: '").removesuffix("'>") for key in config
    }


def _small_model() -> Any:
    import numpy as np
    import openvino as ov
    from openvino import opset13 as op

    parameter = op.parameter([1, 64], np.float32)
    weight = op.constant(np.eye(64, dtype=np.float32))
    return ov.Model([op.result(op.matmul(parameter, weight, False, True))], [parameter], "probe")


def _ones() -> Any:
    import numpy as np

    return np.ones((1, 64), dtype=np.float32)


def _property(core: Any, device: str, name: str) -> Any:
    try:
        return core.get_property(device, name)
    except Exception:  # not every device knows every property
        return ""


if __name__ == "__main__":
    main(int(sys.argv[1]))
