"""What `ask` shows while the chain starts: the last words, and for how long they have stood there."""

from __future__ import annotations

import trio

from fleetchat.cli.ask_output import Progress

PATIENCE = 3.0  # seconds after which words tell for how long they stand: a large shard loads for a minute
TICK = 1.0  # seconds


class Waiting:
    """`note` takes the words, `run` adds the seconds until `end`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._words = ""
        self._since = 0.0
        self._is_over = False

    def note(self, words: str) -> None:
        self._words, self._since = words, trio.current_time()
        self._progress.passing(words)

    def end(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        while not self._is_over:
            waited = trio.current_time() - self._since
            if self._words and waited >= PATIENCE:
                self._progress.passing(f"{self._words}, {waited:.0f} s")
            await trio.sleep(TICK)
