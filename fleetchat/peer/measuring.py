"""A link over which the peer is measured: its layer's time, its memory, and the link itself."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from fleetchat import __version__
from fleetchat.engine.memory import available_memory
from fleetchat.errors import RemoteProtocolError
from fleetchat.peer.report import openvino_version
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Chunk, Error, FaultCode, Goodbye, Kept, Measure, Measured

TimeLayer = Callable[[int, int, int], tuple[float, float]]
"""Seconds that a layer of so many hidden and intermediate values takes: for one row, and for so many rows."""

_log = logging.getLogger(__name__)


async def serve_measuring(
    link: Link, device: str, time_layer: TimeLayer | None, lock: trio.Lock, *, silence: float
) -> None:
    """Answer until the other side leaves; one layer at a time. Raises PeerLost, RemoteProtocolError."""
    while True:
        frame = None
        with trio.move_on_after(silence):
            frame = await link.receive()
        match frame:
            case Chunk():  # its way here and back is what is measured
                await link.send(Kept(frame.file, frame.offset + len(frame.payload)))
            case Measure():
                async with lock:
                    await link.send(await _measured(frame, device, time_layer))
            case Goodbye() | None:
                return
            case _:
                raise RemoteProtocolError(f"{type(frame).__name__} on a measuring link")


async def _measured(asked: Measure, device: str, time_layer: TimeLayer | None) -> Measured | Error:
    if time_layer is None:
        return Error(FaultCode.UNSUPPORTED, "this peer cannot be measured")
    memory = available_memory()
    one = many = 0.0
    note = ""
    try:
        one, many = await trio.to_thread.run_sync(time_layer, asked.hidden, asked.intermediate, asked.rows)
    except Exception as error:  # whatever OpenVINO raises
        _log.warning("a layer could not be timed", exc_info=error)
        note = f"{type(error).__name__}: {error}"
    return Measured(
        fleetchat=__version__,
        openvino=openvino_version(),
        device=device,
        memory_free=memory,
        one_row_us=round(one * 1e6),
        rows_us=round(many * 1e6),
        note=note,
    )
