"""Does what the fleet holds on this machine fit into the free memory?"""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.cutter.manifest import Manifest, StageEntry
from fleetchat.doctor.finding import Finding, fail, ok, warn
from fleetchat.engine.ledger import reserved_cells
from fleetchat.engine.precision import Precision
from fleetchat.engine.states import StateLayout
from fleetchat.engine.warm_up import MEMORY_SHARE, OVER_ALLOCATION

NAME = "memory"
PROCESS_BYTES = 150 * 10**6  # a stage's process with Python and OpenVINO, before any shard
COMPILED = 1.2  # times the shard: what its compiled form takes at most
COMFORT = 1.25  # a fifth of the memory should stay free


def cell_bytes(entry: StageEntry, precision: str) -> int:
    """Bytes of one KV cell on one stage, without over-allocation."""
    heads = sum(count for count, _ in entry.kv_shapes)
    layout = StateLayout({}, entry.kv_values_per_cell, heads)
    return layout.cell_bytes(Precision(precision))


def needed_bytes(manifest: Manifest, local: Sequence[int], *, precision: str, context: int) -> int:
    """What the stages with the indexes `local` take for one conversation of `context` positions."""
    total = 0.0
    for index in local:
        entry = manifest.stages[index]
        cells = reserved_cells(context) * cell_bytes(entry, precision) * OVER_ALLOCATION
        total += PROCESS_BYTES + COMPILED * entry.bin.size + cells / MEMORY_SHARE
    return int(total)


def check_memory(
    manifest: Manifest, local: Sequence[int], *, precision: str, context: int, available: int
) -> Finding:
    """`available` in bytes, 0 when the system does not tell."""
    needed = needed_bytes(manifest, local, precision=precision, context=context)
    if available == 0:
        return warn(
            NAME,
            "this system does not tell how much memory is free",
            "set kv_cells under [fleet]: without it a stage cannot choose its KV cells",
        )
    free = f"{gigabytes(available)} are free"
    if not local:
        return ok(NAME, f"{free}; all stages are on peers")
    stages = "the stage" if len(local) == 1 else f"{len(local)} stages"
    want = (
        f"{stages} of {manifest.model} on this machine need {gigabytes(needed)} for one conversation of "
        f"{context:,} tokens"
    )
    if available < needed:
        return fail(
            NAME,
            f"too little: {free}, {want}",
            "close other programs, lower [model] context, or give stages to peers on other machines",
        )
    if available < needed * COMFORT:
        return warn(NAME, f"just enough: {free}, {want}", "close other programs before a long chat")
    return ok(NAME, f"{free}; {want}")


def gigabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB"
