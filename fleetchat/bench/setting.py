"""What a measurement is told: the model, the cores, how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetchat.bench.machine import core_numbers
from fleetchat.bench.pairs import Effort
from fleetchat.errors import InputError

DEFAULT_RECIPE = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Setting:
    """`cores` are those that stages and baselines are pinned to, stage i to the i-th; empty = unpinned.

    `note` gets one line about what is going on.
    """

    store_root: Path
    effort: Effort
    cores: tuple[int, ...]
    note: Callable[[str], None]
    recipe: str = DEFAULT_RECIPE
    source: Path | None = None
    precision: str = "fast"


def parse_cores(text: str | None) -> tuple[int, ...]:
    """Cores by number, as "0,1"; None takes all that there are. Raises InputError."""
    available = core_numbers()
    if text is None:
        return available
    try:
        wanted = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--cores takes numbers with commas between them, not {text!r}") from None
    if not available:
        raise InputError("--cores: processes cannot be pinned to cores on this system")
    for core in wanted:
        if core not in available:
            known = ",".join(map(str, available))
            raise InputError(f"--cores: core {core} cannot be used, this process may use {known}")
    if len(set(wanted)) != len(wanted):
        raise InputError(f"--cores {text} names a core twice")
    return wanted
