"""A peer gives way to whatever its owner does on the same machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NICENESS = 5  # below normal; 19 would give way to every background job
_BELOW_NORMAL_PRIORITY_CLASS = 0x4000


def lower_priority() -> None:
    """Run below normal priority from now on; where the system does not allow it, nothing happens."""
    if sys.platform == "win32":
        import ctypes

        kernel = ctypes.windll.kernel32
        kernel.SetPriorityClass(kernel.GetCurrentProcess(), _BELOW_NORMAL_PRIORITY_CLASS)
    else:
        with suppress(OSError):
            os.nice(NICENESS)
