"""What waits for a stage: a queue for each chain, served in turn (pure).

Flow control is one end-to-end window of W batches, so a coordinator that keeps to it never finds a
queue full: one batch more is a broken protocol. A batch keeps its place in the window until it has
been sent on, so that what waits for a slow next stage is bounded as well.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetchat.errors import RemoteProtocolError
from fleetchat.ids import ChainId, Epoch, SessionId
from fleetchat.wire.frames import Cancel, Forward, InBand, WireDtype

WINDOW = 32
"""W, batches of one chain on one stage. In flight are about as many batches as stages plus what the
network holds: 100 ms each way at 7 ms a batch are 29. Far fewer are needed without delay."""

IN_BAND_LIMIT = 1024  # CANCEL, CLOSE, COMPACT and FORK of one chain on one stage
FULL_BATCHES = 2  # batches of the greatest size that may wait; decode batches are a thousandth of one
_TOKEN_BYTES = 4


def queue_byte_limit(*, max_rows: int, hidden: int, wire_dtype: WireDtype) -> int:
    """Bytes of waiting batches of one chain from which its link is not read any further."""
    return FULL_BATCHES * max_rows * (_TOKEN_BYTES + hidden * wire_dtype.numpy.itemsize)


def batch_bytes(frame: Forward) -> int:
    """Bytes that the arrays of a batch hold."""
    size = 0 if frame.hidden is None else frame.hidden.nbytes
    for slice_ in frame.slices:
        size += slice_.token_ids.nbytes
    return size


class ServedKey(NamedTuple):
    """One incarnation of a chain."""

    chain: ChainId
    epoch: Epoch


@dataclass(slots=True, eq=False)
class QueuedBatch:
    """A FORWARD that waits. `skipped` are the sessions cancelled since it arrived."""

    frame: Forward
    received_bytes: int
    arrived: float  # seconds on the clock of the stage worker
    skipped: set[SessionId] = field(default_factory=set)


QueuedItem = QueuedBatch | InBand


@dataclass(slots=True)
class _ChainQueue:
    items: deque[QueuedItem] = field(default_factory=deque)
    batches: int = 0  # that hold a place in the window
    in_band: int = 0
    waiting_bytes: int = 0


class ServingQueue:
    """One for each stage. Not thread-safe: `inference.py` guards it."""

    def __init__(self, *, window: int = WINDOW, in_band_limit: int = IN_BAND_LIMIT) -> None:
        self.window = window
        self.in_band_limit = in_band_limit
        self._chains: dict[ServedKey, _ChainQueue] = {}
        self._turn: deque[ServedKey] = deque()  # chains with something to do, next one first

    def open(self, chain: ServedKey) -> None:
        self._chains[chain] = _ChainQueue()

    def drop(self, chain: ServedKey) -> None:
        """Forget a chain and all that waits for it."""
        if self._chains.pop(chain, None) is not None and chain in self._turn:
            self._turn.remove(chain)

    def push_batch(self, chain: ServedKey, batch: QueuedBatch) -> None:
        """Raises RemoteProtocolError beyond the window. A dropped chain is ignored."""
        queue = self._chains.get(chain)
        if queue is None:
            return
        if queue.batches >= self.window:
            raise RemoteProtocolError(f"more than {self.window} batches in flight")
        queue.batches += 1
        queue.waiting_bytes += batch_bytes(batch.frame)
        self._append(chain, queue, batch)

    def push_in_band(self, chain: ServedKey, frame: InBand) -> None:
        """A CANCEL marks the slices of its session that wait before it.

        Raises RemoteProtocolError beyond the limit. A dropped chain is ignored.
        """
        queue = self._chains.get(chain)
        if queue is None:
            return
        if queue.in_band >= self.in_band_limit:
            raise RemoteProtocolError(f"more than {self.in_band_limit} session orders are waiting")
        queue.in_band += 1
        if isinstance(frame, Cancel):
            for item in queue.items:
                if isinstance(item, QueuedBatch):
                    item.skipped.add(frame.session)
        self._append(chain, queue, frame)

    def pop(self) -> tuple[ServedKey, QueuedItem] | None:
        """The next item of the chain whose turn it is; that chain then goes to the end of the line."""
        if not self._turn:
            return None
        chain = self._turn.popleft()
        queue = self._chains[chain]
        item = queue.items.popleft()
        if isinstance(item, QueuedBatch):
            queue.waiting_bytes -= batch_bytes(item.frame)
        if queue.items:
            self._turn.append(chain)
        return chain, item

    def release(self, chain: ServedKey, item: QueuedItem) -> None:
        """The item was carried out and sent on: its place is free."""
        queue = self._chains.get(chain)
        if queue is None:
            return
        if isinstance(item, QueuedBatch):
            queue.batches -= 1
        else:
            queue.in_band -= 1

    def held(self, chain: ServedKey) -> int:
        """Items of a chain that wait, are carried out, or are being sent on."""
        queue = self._chains.get(chain)
        return 0 if queue is None else queue.batches + queue.in_band

    def waiting_bytes(self, chain: ServedKey) -> int:
        queue = self._chains.get(chain)
        return 0 if queue is None else queue.waiting_bytes

    def _append(self, chain: ServedKey, queue: _ChainQueue, item: QueuedItem) -> None:
        queue.items.append(item)
        if len(queue.items) == 1:
            self._turn.append(chain)
