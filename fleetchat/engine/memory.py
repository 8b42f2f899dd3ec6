"""How much memory the machine has left and how much this process holds, on three systems, without psutil."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

from fleetchat.system_text import output_of, text_of

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes to be had without swapping, within a container's limit; 0 when the system does not say."""
    if sys.platform == "win32":
        return _windows_available()
    if sys.platform == "darwin":
        return vm_stat_available(output_of("vm_stat"))
    available = meminfo_available(text_of(Path("/proc/meminfo")))
    limit = cgroup_available(text_of(_CGROUP / "memory.max"), text_of(_CGROUP / "memory.current"))
    return available if limit is None else min(available, limit)


def resident_memory() -> int:
    """Bytes of this process that are in memory; 0 when the system does not say."""
    if sys.platform == "win32":
        return _windows_resident()
    if sys.platform == "darwin":
        return 1024 * _first_number(output_of("ps", "-o", "rss=", "-p", str(os.getpid())))
    return 1024 * _labelled_number(text_of(Path("/proc/self/status")), "VmRSS")


def meminfo_available(meminfo: str) -> int:
    """`MemAvailable` of /proc/meminfo, in bytes."""
    return 1024 * _labelled_number(meminfo, "MemAvailable")


def cgroup_available(maximum: str, current: str) -> int | None:
    """What a cgroup v2 leaves, in bytes; None when it sets no limit."""
    if not maximum.strip().isdigit() or not current.strip().isdigit():
        return None
    return max(0, int(maximum) - int(current))


def vm_stat_available(report: str) -> int:
    """Free, inactive and speculative pages of macOS's vm_stat, in bytes."""
    page_size = re.search(r"page size of (\d+) bytes", report)
    if page_size is None:
        return 0
    pages = sum(_labelled_number(report, f"Pages {kind}") for kind in ("free", "inactive", "speculative"))
    return int(page_size[1]) * pages


def _labelled_number(text: str, label: str) -> int:
    found = re.search(rf"^{re.escape(label)}:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _first_number(text: str) -> int:
    found = re.search(r"\d+", text)
    return int(found[0]) if found else 0


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


class _ProcessMemory(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        *((name, ctypes.c_size_t) for name in ("peak_working_set", "working_set")),
        *((f"quota_{number}", ctypes.c_size_t) for number in range(4)),
        *((name, ctypes.c_size_t) for name in ("page_file", "peak_page_file")),
    )


if sys.platform == "win32":

    def _windows_available() -> int:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        succeeded = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.available) if succeeded else 0

    def _windows_resident() -> int:
        counters = _ProcessMemory(size=ctypes.sizeof(_ProcessMemory))
        kernel = ctypes.windll.kernel32
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        process = ctypes.c_void_p(kernel.GetCurrentProcess())
        succeeded = kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
        return int(counters.working_set) if succeeded else 0
