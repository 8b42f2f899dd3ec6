"""The inference thread of one loaded stage: it owns the engine, and nobody else calls it.

Work goes in through a queue under a lock and a bell (`SimpleQueue`, whose `get` costs microseconds);
what comes out is handed to the chain on this thread, which sends it at once if the socket takes it. The
thread takes its next batch by itself, so between two batches nothing waits for the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import trio

from fleetchat.engine.interface import StageEngine
from fleetchat.peer.queue import QueuedBatch, QueuedItem, ServedKey, ServingQueue
from fleetchat.peer.stage import StageWorker
from fleetchat.wire.frames import Forward, InBand, Result

_log = logging.getLogger(__name__)

Outgoing = Forward | Result | InBand


@dataclass(frozen=True, slots=True)
class ServedChain:
    """What the thread knows of a chain. `on_done` runs on this thread, `on_fault` on the trio thread."""

    key: ServedKey
    worker: StageWorker
    on_done: Callable[[QueuedItem, Outgoing], None]
    on_fault: Callable[[str], None]


class InferenceThread:
    """Start it from a trio task; `load` runs on the thread and returns the engine."""

    def __init__(self, name: str, load: Callable[[], StageEngine]) -> None:
        self._load = load
        self._token = trio.lowlevel.current_trio_token()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._orders: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()  # guards _queue and _chains
        self._queue = ServingQueue()
        self._chains: dict[ServedKey, ServedChain] = {}
        self._stopping = False
        self._outcome: StageEngine | BaseException | None = None
        self._loaded = trio.Event()
        self._ended = trio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def wait_loaded(self) -> StageEngine:
        """The engine, to read its traits. Raises what `load` raised."""
        await self._loaded.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    @property
    def window(self) -> int:
        return self._queue.window

    def open_chain(self, chain: ServedChain) -> None:
        with self._lock:
            self._chains[chain.key] = chain
            self._queue.open(chain.key)

    def drop_chain(self, key: ServedKey) -> None:
        """Forget what waits for the chain; its sessions are freed after the batch that runs now."""
        with self._lock:
            self._queue.drop(key)
            chain = self._chains.pop(key, None)
        if chain is not None:
            self.order(chain.worker.free)

    def push_batch(self, key: ServedKey, batch: QueuedBatch) -> None:
        """Raises RemoteProtocolError beyond the window."""
        with self._lock:
            self._queue.push_batch(key, batch)
        self._bell.put(None)

    def push_in_band(self, key: ServedKey, frame: InBand) -> None:
        """Raises RemoteProtocolError beyond the limit."""
        with self._lock:
            self._queue.push_in_band(key, frame)
        self._bell.put(None)

    def release(self, key: ServedKey, item: QueuedItem) -> None:
        """The item was sent on."""
        with self._lock:
            self._queue.release(key, item)

    def waiting_bytes(self, key: ServedKey) -> int:
        return self._queue.waiting_bytes(key)

    def queue_length(self, key: ServedKey) -> int:
        """With what is being carried out: it may take minutes, and the chain must not be thought idle."""
        return self._queue.held(key)

    def order(self, action: Callable[[], None]) -> None:
        """Run `action` on the thread before the next batch."""
        self._orders.append(action)
        self._bell.put(None)

    def stop(self) -> None:
        """Close the engine and end, after the batch that runs now."""
        self._stopping = True
        self._bell.put(None)

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def _run(self) -> None:
        try:
            outcome: StageEngine | BaseException = self._load()
        except BaseException as error:  # goes to whoever waits for the load
            outcome = error
        try:
            self._token.run_sync_soon(self._note_loaded, outcome)
            if not isinstance(outcome, BaseException):
                try:
                    self._serve()
                finally:
                    self._guarded(outcome.close)
            self._token.run_sync_soon(self._ended.set)
        except trio.RunFinishedError:
            return  # the event loop has ended: nobody is left to serve

    def _note_loaded(self, outcome: StageEngine | BaseException) -> None:
        self._outcome = outcome
        self._loaded.set()

    def _serve(self) -> None:
        while not self._stopping:
            compacting = self._compacting()
            with contextlib.suppress(Empty):
                self._bell.get(block=compacting is None)
            while self._orders:
                self._guarded(self._orders.popleft())
            self._serve_one()
            if compacting is not None:
                self._guarded(compacting.worker.compaction_step)

    def _compacting(self) -> ServedChain | None:
        with self._lock:
            return next((chain for chain in self._chains.values() if chain.worker.compacting), None)

    def _serve_one(self) -> None:
        with self._lock:
            taken = self._queue.pop()
            if taken is None:
                return
            chain = self._chains[taken[0]]
        item = taken[1]
        try:
            outgoing = self._carry_out(chain.worker, item)
        except Exception as error:  # a defect of ours: it ends this chain, not the peer
            _log.exception("a batch could not be served")
            self._token.run_sync_soon(chain.on_fault, f"{type(error).__name__}: {error}")
        else:
            chain.on_done(item, outgoing)

    @staticmethod
    def _carry_out(worker: StageWorker, item: QueuedItem) -> Outgoing:
        if isinstance(item, QueuedBatch):
            return worker.forward(item)
        worker.in_band(item)
        return item

    @staticmethod
    def _guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            _log.exception("an order of the stage failed")
