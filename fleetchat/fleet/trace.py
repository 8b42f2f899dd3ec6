"""What every stage did, as a file in Chrome's trace event format: chrome://tracing and Perfetto show it.

The file is written as it happens, and may be read while it grows: the format allows the closing bracket to
be missing. It ends at a limit, since such a file is of use for minutes, not for days.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import trio

from fleetchat.errors import InputError
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.timeline import DRAFT_LANE, Block, Timeline

MAX_BYTES = 256 * 2**20  # some 2 million blocks, hours of two stages that are never idle
PROCESS = 1  # one chain, one process in the viewer; its threads are the lanes


class TraceWriter:
    """Writes to an open text file. After `max_bytes`, or when the disk is full, nothing more is written."""

    def __init__(
        self,
        file: TextIO,
        lanes: Mapping[int, str],
        *,
        title: str,
        began: float,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`lanes` are the titles of the lanes, by their number in blocks; `began` is the trace's time 0."""
        self._file = file
        self._began = began
        self._left = max_bytes
        self._separator = "[\n"
        self._ended = False
        self._metadata("process_name", 0, {"name": title})
        for lane, name in lanes.items():
            self._metadata("thread_name", _thread(lane), {"name": name})
            self._metadata("thread_sort_index", _thread(lane), {"sort_index": _thread(lane)})

    def write(self, block: Block) -> None:
        """One block."""
        self._event(
            {
                "name": f"session {block.session} {block.kind}",
                "cat": str(block.kind),
                "ph": "X",
                "pid": PROCESS,
                "tid": _thread(block.lane),
                "ts": round((block.start - self._began) * 1e6, 1),
                "dur": round((block.end - block.start) * 1e6, 1),
                "args": {"session": block.session, "rows": block.rows},
            }
        )

    def close(self) -> None:
        """End the document, and the file. Never raises."""
        self._ended = False
        self._put("\n]\n")
        self._ended = True
        with suppress(OSError):
            self._file.close()

    def _metadata(self, name: str, thread: int, arguments: dict[str, object]) -> None:
        self._event({"name": name, "ph": "M", "pid": PROCESS, "tid": thread, "args": arguments})

    def _event(self, event: dict[str, object]) -> None:
        line = self._separator + json.dumps(event, separators=(",", ":"))
        self._left -= len(line)
        if self._left < 0:
            self._ended = True
        self._put(line)
        self._separator = ",\n"

    def _put(self, text: str) -> None:
        if self._ended:
            return
        try:
            self._file.write(text)
        except OSError:  # a trace is not worth a reply
            self._ended = True


@contextmanager
def tracing(options: FleetOptions, timeline: Timeline) -> Iterator[None]:
    """Write the timeline's blocks to `options.trace_file`, if there is one. Raises InputError."""
    if options.trace_file is None:
        yield
        return
    lanes = {DRAFT_LANE: "drafting"}
    for entry in options.manifest.stages:
        lanes[entry.index] = f"stage {entry.index}, layers {entry.first_layer} to {entry.last_layer}"
    file = open_trace(options.trace_file)
    writer = TraceWriter(file, lanes, title=options.manifest.model, began=trio.current_time())
    timeline.on_block = writer.write
    try:
        yield
    finally:
        timeline.on_block = lambda block: None
        writer.close()


def open_trace(path: Path) -> TextIO:
    """An empty file, ASCII. Raises InputError when it cannot be written."""
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"the trace cannot be written to {path}: {error.strerror}") from None


def _thread(lane: int) -> int:
    return lane + 1  # viewers want whole numbers from 0
