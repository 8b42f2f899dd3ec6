"""The machine that a measurement was made on: everything that a figure cannot be read without."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fleetchat import __version__

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
PACKAGES = ("openvino", "openvino-genai", "numpy", "trio")


def describe_machine() -> dict[str, object]:
    """Names and numbers, ready for JSON."""
    return {
        "cpu": cpu_name(),
        "cores": available_cores(),
        "instructions": [name for name in INSTRUCTIONS if name in _cpu_flags()],
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "fleetchat": __version__,
        **{name: _version(name) for name in PACKAGES},
        "load": load_average(),
    }


def cpu_name() -> str:
    """What the CPU calls itself."""
    for line in _cpu_info():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(core_numbers()) or os.cpu_count() or 1


def core_numbers() -> tuple[int, ...]:
    """Cores that a process of ours may be pinned to; empty where nothing can be pinned."""
    if sys.platform != "linux":
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def load_average() -> float | None:
    """Processes that wanted a core in the last minute, before the measurement; None where unknown."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _cpu_info() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _cpu_flags() -> set[str]:
    for line in _cpu_info():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
