"""The thread that owns the chat store, so that no slow disk and no other program holds up the screen."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from fleetchat.chat.history import History, open_history
from fleetchat.errors import HistoryError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Job = tuple[Callable[[History], Any], "Future[Any]"]


class Archive:
    """Carries out jobs on the store, in order. The store is opened by the first job."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # A daemon: a disk that hangs must not keep the process.
        self._thread = threading.Thread(target=self._work, name="fleetchat-archive", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[History], Result]) -> Result:
        """The result of a job. Raises HistoryError."""
        result: Result = await asyncio.wrap_future(self.post(job))
        return result

    def post(self, job: Callable[[History], Result]) -> Future[Result]:
        """Have a job done without waiting; what goes wrong is in the future, and in the log."""
        future: Future[Result] = Future()
        self._jobs.put((job, future))
        return future

    def close(self, timeout: float) -> bool:
        """Finish what was posted, waiting at most `timeout` seconds. True when all is done."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        history: History | None = None
        while (posted := self._jobs.get()) is not None:
            job, future = posted
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if history is None:
                    history = open_history(self._path)
                future.set_result(job(history))
            except Exception as error:
                log.warning("the chat store: %s", error, exc_info=not isinstance(error, HistoryError))
                future.set_exception(
                    error
                    if isinstance(error, HistoryError)
                    else HistoryError(f"the chat store failed: {error}")
                )
        if history is not None:
            history.close()
