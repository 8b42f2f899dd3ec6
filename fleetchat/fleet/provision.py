"""Make sure that the shards a fleet needs are built.

The build runs in a process of its own: the chat process never loads a converter or an exporter.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from fleetchat.child import child_command, child_environment, own_process_group
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.errors import BuildError, CutRefused, FleetchatError, InputError
from fleetchat.ids import BuildKey

LINE_LIMIT = 64 * 1024  # bytes of one progress line


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """One step of a build. `total` 0 means that the step cannot be counted."""

    step: str
    done: int
    total: int


def build_arguments(
    recipe: str,
    stages: int,
    store_root: Path,
    source: Path | None,
    layers: Sequence[tuple[int, int]] | None = None,
) -> list[str]:
    """The command line of the build process."""
    arguments = ["shards", "build", recipe, "--stages", str(stages)]
    arguments += ["--store", str(store_root), "--progress", "json"]
    if layers is not None:
        arguments += ["--layers", ",".join(f"{first}-{last}" for first, last in layers)]
    if source is not None:
        arguments += ["--from", str(source)]
    return arguments


async def build_in_process(
    recipe: str,
    stages: int,
    *,
    store: Store,
    source: Path | None = None,
    layers: Sequence[tuple[int, int]] | None = None,
    on_progress: Callable[[BuildProgress], None],
    on_start: Callable[[int], None] = lambda process: None,
) -> Manifest:
    """Build (or find built) the shards of a recipe; a cancelled build leaves nothing half-written.

    `layers` cuts by hand: first and last layer of each stage. `on_start` gets the number of the process.

    Raises the build's own failure: InputError for a wrong recipe or source, BuildError otherwise.
    """
    options: dict[str, Any] = {**own_process_group(), "env": child_environment()}
    process = await trio.lowlevel.open_process(
        child_command(*build_arguments(recipe, stages, store.root, source, layers)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **options,
    )
    on_start(process.pid)
    try:
        last = await _follow(process, on_progress)
        await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
                await process.wait()
                await trio.to_thread.run_sync(store.sweep)
    return _outcome(last, store)


async def _follow(process: trio.Process, on_progress: Callable[[BuildProgress], None]) -> dict[str, Any]:
    assert process.stdout is not None
    last: dict[str, Any] = {}
    async for line in _lines(process.stdout):
        try:
            last = json.loads(line)
        except ValueError:
            continue  # a library printed something of its own
        if "step" in last:
            on_progress(BuildProgress(str(last["step"]), int(last["done"]), int(last["total"])))
    return last


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    received = b""
    async for chunk in stream:
        received += chunk
        *whole, received = received.split(b"\n")
        if len(received) > LINE_LIMIT:
            raise BuildError("the build process printed a line that never ends")
        for line in whole:
            yield line


def _outcome(last: dict[str, Any], store: Store) -> Manifest:
    if "build_key" in last:
        manifest = store.find(BuildKey(str(last["build_key"])))
        if manifest is not None:
            return manifest
    if "error" in last:
        kind: type[FleetchatError] = InputError if last.get("exit") == 2 else BuildError
        if last.get("refused") is True:
            kind = CutRefused
        raise kind(str(last["error"]), hint=str(last["hint"]) if last.get("hint") else None)
    raise BuildError(
        "the build process ended without a result",
        hint="run `fleetchat shards build` to see why; memory may have run out",
    )
