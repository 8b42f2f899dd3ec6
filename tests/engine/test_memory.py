"""What three systems say about memory, from texts that they printed."""

from __future__ import annotations

import sys

import pytest

from fleetchat.engine.memory import (
    available_memory,
    cgroup_available,
    meminfo_available,
    resident_memory,
    vm_stat_available,
)

MEMINFO = "MemTotal:       24682876 kB\nMemFree:          123456 kB\nMemAvailable:   20000000 kB\n"
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10000.
Pages active:                            200000.
Pages inactive:                           30000.
Pages speculative:                          500.
"""


def test_linux() -> None:
    assert meminfo_available(MEMINFO) == 20_000_000 * 1024
    assert meminfo_available("") == 0


@pytest.mark.parametrize(
    ("maximum", "current", "expected"),
    [("1000\n", "400\n", 600), ("1000\n", "1400\n", 0), ("max\n", "400\n", None), ("", "", None)],
)
def test_a_container(maximum: str, current: str, expected: int | None) -> None:
    assert cgroup_available(maximum, current) == expected


def test_macos() -> None:
    assert vm_stat_available(VM_STAT) == 40_500 * 16_384
    assert vm_stat_available("") == 0


def test_this_machine() -> None:
    assert available_memory() > 1 << 20
    held = resident_memory()
    assert held > 1 << 20
    if sys.platform == "linux":
        block = b"x" * (64 << 20)
        assert resident_memory() - held > 32 << 20
        assert len(block) == 64 << 20
