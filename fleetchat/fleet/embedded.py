"""Embedded peers: subprocesses of the chat process that serve stages on loopback.

They die with the chat process: each blocks a thread on its stdin and leaves at end of file, also
after SIGKILL of the parent. See `peer/embedded.py` for their side.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from fleetchat.child import child_command, child_environment, own_process_group
from fleetchat.errors import ExitCode, FleetError, PeerRefused
from fleetchat.ids import Address
from fleetchat.keys import certificate_of

START_DEADLINE = 30.0  # seconds until the port is known; imports alone take 1 to 3 s on a busy machine
LEAVE_DEADLINE = 2.0  # seconds a peer gets to leave after end of file on its stdin
FIRST_LINE_LIMIT = 4096  # bytes


@asynccontextmanager
async def embedded_peer(
    *,
    key: bytes,
    store_root: Path,
    threads: int,
    log_file: Path,
    core: int | None = None,
    kv_cells: int | None = None,
    stages_here: int = 1,
    device: str = "CPU",
) -> AsyncIterator[tuple[Address, trio.Process]]:
    """Run one peer process; yields its address. Raises FleetError when it does not start.

    `stages_here` embedded stages, this one included, divide the machine's memory between them.
    """
    arguments = ["peer", "--embedded", "--threads", str(threads), "--store", str(store_root)]
    arguments += ["--log", str(log_file)]
    if device != "CPU":
        arguments += ["--device", device]
    if core is not None:
        arguments += ["--cores", str(core)]
    if (certificate := certificate_of(key)) is not None:
        arguments += ["--certificate", str(certificate)]
    if kv_cells is not None:
        arguments += ["--kv-cells", str(kv_cells)]
    if stages_here != 1:
        arguments += ["--stages-here", str(stages_here)]
    options: dict[str, Any] = {**own_process_group(), "env": child_environment()}
    process = await trio.lowlevel.open_process(
        child_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        yield await _first_contact(process, key, log_file), process
    finally:
        with trio.CancelScope(shield=True):
            await _let_go(process)


async def _first_contact(process: trio.Process, key: bytes, log_file: Path) -> Address:
    assert process.stdin is not None
    assert process.stdout is not None
    failure = FleetError(
        "an embedded shard peer did not start",
        hint=f"its log is {log_file}; `fleetchat paths` names the folder",
    )
    try:
        with trio.fail_after(START_DEADLINE):
            with suppress(trio.BrokenResourceError):  # it has left already, and says why
                await process.stdin.send_all(key.hex().encode("ascii") + b"\n")
            line = await _read_line(process.stdout)
        answer = json.loads(line)
    except (trio.TooSlowError, trio.BrokenResourceError, ValueError) as cause:
        raise failure from cause
    match answer:
        case {"port": int(port)} if 0 < port < 65536:
            return Address("127.0.0.1", port)
        case {"error": str(text)}:
            hint = answer.get("hint")
            kind = PeerRefused if answer.get("exit") == ExitCode.WRONG_INPUT else FleetError
            raise kind(
                f"an embedded shard peer did not start: {text}", hint=hint if isinstance(hint, str) else None
            )
    raise failure


async def _read_line(stream: trio.abc.ReceiveStream) -> bytes:
    received = bytearray()
    while b"\n" not in received:
        chunk = await stream.receive_some(FIRST_LINE_LIMIT)
        if not chunk or len(received) > FIRST_LINE_LIMIT:
            raise ValueError("no line")
        received += chunk
    return bytes(received[: received.index(b"\n")])


async def _let_go(process: trio.Process) -> None:
    """End of file on stdin ends the peer; one that does not leave in time is killed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
    with trio.move_on_after(LEAVE_DEADLINE):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
