"""`memory.peer`: what a peer takes that is nobody else's: growth at compile, growth by a conversation."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import trio

from fleetchat.bench.fleet_side import GREEDY, require_success
from fleetchat.bench.fusion import text_ids
from fleetchat.bench.pairs import Row
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.engine.states import SCALE_BYTES
from fleetchat.fleet.coordinator import Fleet, open_fleet
from fleetchat.fleet.embedded import embedded_peer
from fleetchat.fleet.options import PeerSpec
from fleetchat.fleet.session import GenerationRequest
from fleetchat.paths import log_folder

TOKENS = 514
MORE_SESSIONS = 6  # after one that makes the buffers of the activations as large as they get
QUICK_SESSIONS = 3
MEGABYTE = 1e6
PROBE = """
import json, sys
import openvino
core = openvino.Core()
core.get_property("CPU", "FULL_DEVICE_NAME")
print(flush=True)
sys.stdin.readline()
compiled = core.compile_model(sys.argv[1], "CPU", json.loads(sys.argv[2]))
print(flush=True)
sys.stdin.readline()
"""


async def measure_memory(setting: Setting, subject: Subject) -> tuple[list[Row], list[str]]:
    """Rows `memory.peer` and `memory.peer.kv` of the first stage, and notes; no rows without /proc."""
    if sys.platform != "linux":
        return [], ["memory.peer is measured on Linux only"]
    setting.note("memory of a peer")
    more = QUICK_SESSIONS if setting.effort.quick else MORE_SESSIONS
    compiling = await growth_at_compile(setting, subject)
    key = secrets.token_bytes(32)
    async with embedded_peer(
        key=key, store_root=subject.store.root, threads=1, log_file=log_folder() / "bench-peer.log"
    ) as (address, process):
        peers = (PeerSpec(address), *subject.fleet_options(setting).peers[1:])
        options = replace(subject.fleet_options(setting), peers=peers, key=key)
        empty = anonymous(process.pid)
        async with open_fleet(options, on_progress=setting.note) as fleet:
            ready = anonymous(process.pid)
            await _read(fleet, subject)
            warm = anonymous(process.pid)
            for _ in range(more):
                await _read(fleet, subject)
            used = anonymous(process.pid)
            mapped = mapped_shards(process.pid)
    shard = subject.manifest.stages[0].bin.size
    cells = more * TOKENS * cell_bytes(subject, 0, setting.precision)
    rows = [
        Row("memory.peer", compiling / MEGABYTE, "MB", shard / MEGABYTE, compiling / shard),
        Row("memory.peer.kv", (used - warm) / MEGABYTE, "MB", cells / MEGABYTE, (used - warm) / cells),
    ]
    notes = [
        f"memory.peer: anonymous memory that compiling stage 0 takes, against its shard; a whole peer takes "
        f"{(ready - empty) / MEGABYTE:.0f} MB from its start until it is warm and ready, libraries included; "
        f"it maps {', '.join(mapped) or 'no shard'}",
        f"memory.peer.kv: what {more} more conversations of {TOKENS} tokens take, against their "
        f"cells' nominal size; the first takes {(warm - ready) / MEGABYTE:.0f} MB, with its activations",
    ]
    return rows, notes


async def growth_at_compile(setting: Setting, subject: Subject) -> int:
    """Anonymous bytes that compiling the first stage adds to a process that has loaded OpenVINO."""
    xml = str(subject.store.stage_xml(subject.manifest, 0))
    config = json.dumps(openvino_config(setting.precision, 1, fast=subject.fast))
    process = await trio.lowlevel.open_process(
        [sys.executable, "-P", "-c", PROBE, xml, config], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with process.stdin, process.stdout:
            await process.stdout.receive_some(1)
            before = anonymous(process.pid)
            await process.stdin.send_all(b"\n")
            await process.stdout.receive_some(1)
            return anonymous(process.pid) - before
    finally:
        with trio.CancelScope(shield=True):
            await process.wait()


def anonymous(process: int) -> int:
    """Bytes of a process's memory that no file stands behind."""
    return anonymous_of(Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii"))


def anonymous_of(rollup: str) -> int:
    """`Anonymous` of /proc/…/smaps_rollup, in bytes."""
    found = re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def mapped_shards(process: int) -> list[str]:
    """Names of the weight files that a process maps."""
    return shards_of(Path(f"/proc/{process}/maps").read_text(encoding="utf-8"))


def shards_of(maps: str) -> list[str]:
    """Names of the weight files in /proc/…/maps."""
    return sorted(
        {Path(line.split(maxsplit=5)[5]).name for line in maps.splitlines() if line.endswith(".bin")}
    )


def cell_bytes(subject: Subject, stage: int, precision: str) -> int:
    """Bytes of one cell of a stage as OpenVINO stores it."""
    entry = subject.manifest.stages[stage]
    if Precision(precision) is Precision.EXACT:
        return 4 * entry.kv_values_per_cell
    return entry.kv_values_per_cell + SCALE_BYTES * sum(heads for heads, _ in entry.kv_shapes)


async def _read(fleet: Fleet, subject: Subject) -> None:
    """Fill a session."""
    request = GenerationRequest(tuple(text_ids(subject, TOKENS)), GREEDY, 0, 1, subject.stop_ids)
    require_success(
        await fleet.generate(
            fleet.new_session(), request, subject.chat_format.decoder(), on_text=lambda text: None
        )
    )
