"""Whether this machine runs on its battery, on three systems, without psutil."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from fleetchat.system_text import output_of, text_of

SUPPLIES = Path("/sys/class/power_supply")


def on_battery() -> bool:
    """False also when the system does not say, and on machines without a battery."""
    if sys.platform == "win32":
        return _windows_on_battery()
    if sys.platform == "darwin":
        return "Battery Power" in output_of("pmset", "-g", "batt")
    return linux_on_battery(SUPPLIES)


def linux_on_battery(supplies: Path) -> bool:
    """A battery of the machine (not of a mouse) discharges, and no mains supply is online."""
    discharging = online = False
    try:
        folders = list(supplies.iterdir())
    except OSError:
        return False
    for folder in folders:
        kind, scope = text_of(folder / "type"), text_of(folder / "scope")
        if kind == "Battery" and scope != "Device":
            discharging = discharging or text_of(folder / "status") == "Discharging"
        elif kind in ("Mains", "USB"):
            online = online or text_of(folder / "online") == "1"
    return discharging and not online


class _PowerStatus(ctypes.Structure):
    """SYSTEM_POWER_STATUS."""

    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("ac_line", "battery", "percent", "saver")),
        ("seconds", ctypes.c_uint32),
        ("full_seconds", ctypes.c_uint32),
    )


if sys.platform == "win32":

    def _windows_on_battery() -> bool:
        status = _PowerStatus()
        return bool(ctypes.windll.kernel32.GetSystemPowerStatus(ctypes.byref(status)) and status.ac_line == 0)
