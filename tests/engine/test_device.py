"""Devices without a device: what is there, and which keep sessions apart."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleetchat.engine.device import is_there, missing_device, needs_own_models, require_device
from fleetchat.engine.states import Shape
from fleetchat.errors import FleetError


@pytest.mark.parametrize(
    ("device", "found", "there"),
    [
        ("CPU", ["CPU"], True),
        ("GPU", ["CPU"], False),
        ("GPU", ["CPU", "GPU"], True),
        ("GPU", ["CPU", "GPU.0", "GPU.1"], True),
        ("GPU.1", ["CPU", "GPU.0", "GPU.1"], True),
        ("GPU.2", ["CPU", "GPU.0", "GPU.1"], False),
        ("GPU.0", ["CPU", "NPU"], False),
        ("NPU", [], False),
    ],
)
def test_what_is_there(device: str, found: list[str], there: bool) -> None:
    assert is_there(device, found) is there


def test_a_device_that_is_missing_is_told_with_those_that_are_there() -> None:
    assert missing_device("GPU", ["CPU", "NPU"]) == (
        "there is no device GPU on this machine: OpenVINO finds CPU, NPU",
        "use one of these, or install the driver of GPU; `fleetchat doctor` lists the devices",
    )
    require_device("NPU", ["CPU", "NPU"])
    with pytest.raises(FleetError, match="no device GPU on this machine: OpenVINO finds none at all"):
        require_device("GPU", [])


@dataclass
class Runs:
    """A device on which `shared` sessions have one state."""

    shared: bool
    lengths: list[int] = field(default_factory=list)

    def trial_session(self) -> int:
        self.lengths.append(0)
        return len(self.lengths) - 1

    def trial_run(self, session: int, rows: int) -> None:
        for one in range(len(self.lengths)) if self.shared else (session,):
            self.lengths[one] += rows

    def state_shapes(self, session: int) -> dict[str, Shape]:
        return {"key": (1, 2, self.lengths[session], 4)}


def test_sessions_that_share_a_state_need_models_of_their_own() -> None:
    assert needs_own_models("NPU", Runs(shared=True))
    assert not needs_own_models("GPU", Runs(shared=False))


def test_on_the_cpu_nothing_is_tried() -> None:
    runs = Runs(shared=True)
    assert not needs_own_models("CPU", runs)
    assert runs.lengths == []
