"""Devices of OpenVINO: which of them is there, and whether it keeps sessions apart. No OpenVINO here."""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.engine.warm_up import Runner, Session
from fleetchat.errors import FleetError

CPU = "CPU"


def is_there(device: str, found: Sequence[str]) -> bool:
    """OpenVINO lists one GPU as `GPU`, several as `GPU.0` and `GPU.1`; `GPU` is the first of them then."""
    return any(device == name or device == name.partition(".")[0] for name in found)


def missing_device(device: str, found: Sequence[str]) -> tuple[str, str]:
    """Message and hint for a device that is not here."""
    names = ", ".join(found) or "none at all"
    text = f"there is no device {device} on this machine: OpenVINO finds {names}"
    return text, f"use one of these, or install the driver of {device}; `fleetchat doctor` lists the devices"


def require_device(device: str, found: Sequence[str]) -> None:
    """Raises FleetError that names the devices that there are."""
    if not is_there(device, found):
        text, hint = missing_device(device, found)
        raise FleetError(text, hint=hint)


def needs_own_models(device: str, runner: Runner[Session]) -> bool:
    """Whether each session needs a compiled model of its own.

    On the CPU every request has a state of its own (measured). Elsewhere it is tried: what one session runs
    must not lengthen the state of another. Raises RuntimeError when the model cannot be run.
    """
    if device == CPU:
        return False
    first, second = runner.trial_session(), runner.trial_session()
    runner.trial_run(first, 2)
    before = runner.state_shapes(first)
    runner.trial_run(second, 3)
    return runner.state_shapes(first) != before
