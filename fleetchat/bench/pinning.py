"""Processes that measure on cores of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Stay on the first of `cores`; threads that are started inside stay there as well."""
    if not cores or sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
