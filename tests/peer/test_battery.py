from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.peer.battery import linux_on_battery

BATTERY = {"type": "Battery", "status": "Discharging"}
MAINS = {"type": "Mains", "online": "0"}


@pytest.mark.parametrize(
    ("supplies", "on_battery"),
    [
        ({}, False),
        ({"BAT0": BATTERY}, True),
        ({"BAT0": BATTERY, "AC": MAINS}, True),
        ({"BAT0": BATTERY, "AC": MAINS | {"online": "1"}}, False),
        ({"BAT0": BATTERY | {"status": "Charging"}}, False),
        ({"mouse": BATTERY | {"scope": "Device"}}, False),
    ],
)
def test_linux(supplies: dict[str, dict[str, str]], on_battery: bool, tmp_path: Path) -> None:
    for name, values in supplies.items():
        (tmp_path / name).mkdir()
        for key, value in values.items():
            (tmp_path / name / key).write_text(f"{value}\n")
    assert linux_on_battery(tmp_path) is on_battery
    assert not linux_on_battery(tmp_path / "nowhere")
