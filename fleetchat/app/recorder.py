"""The thread that writes a recording of the panel, so that no slow disk holds up the screen."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

from fleetchat.app.panel.recording import MAX_BYTES, RecordingWriter, open_recording
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.timeline import Block

LONGEST_QUEUE = 240  # views, a minute; beyond it some are left out


class PanelRecorder:
    """Takes views until it is closed, or until the file has reached its limit."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Raises InputError when the file cannot be written."""
        self.path = path
        self._writer = RecordingWriter(open_recording(path), max_bytes=max_bytes)
        self._views: queue.Queue[tuple[PanelView, list[Block]] | None] = queue.Queue(LONGEST_QUEUE)
        # A daemon: a disk that hangs must not keep the process.
        self._thread = threading.Thread(target=self._write, name="fleetchat-recorder", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> str:
        """Why nothing more is written; empty while it is."""
        return self._writer.ended

    @property
    def written(self) -> int:
        """Bytes."""
        return self._writer.written

    def take(self, view: PanelView, blocks: list[Block]) -> None:
        """A view, and the blocks that it brought. Never waits."""
        if not self.ended and not self._views.full():
            self._views.put_nowait((view, blocks))

    def close(self, timeout: float) -> bool:
        """End the file, waiting at most `timeout` seconds. True when all is written."""
        deadline = time.monotonic() + timeout
        try:
            self._views.put(None, timeout=timeout)
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _write(self) -> None:
        while (taken := self._views.get()) is not None:
            self._writer.write(*taken)
        self._writer.close()
