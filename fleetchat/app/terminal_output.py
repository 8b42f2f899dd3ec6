"""What is written to a terminal that is gone.

When the window is closed or the connection lost, writing fails. Textual's writing thread would end of it,
and the program would wait for that thread for ever: no key and no signal could end it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, Protocol, cast

from textual.app import App
from textual.driver import Driver


class LastingFile:
    """A terminal's file. After the first failure all is dropped; `lost` is called once, from any thread."""

    def __init__(self, file: IO[str], lost: Callable[[], None]) -> None:
        self._file = file
        self._lost: Callable[[], None] | None = lost

    def write(self, text: str) -> int:
        self._attempt(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _attempt(self, action: Callable[[], object]) -> None:
        lost = self._lost
        if lost is None:
            return
        try:
            action()
        except (OSError, ValueError):  # ValueError: the file is closed
            self._lost = None
            lost()


class LosesTerminal(Protocol):
    """An application that is told when its terminal is gone."""

    def terminal_is_lost(self) -> None: ...


def with_lasting_file(driver_class: type[Driver]) -> type[Driver]:
    """The driver of a platform, writing to a LastingFile."""

    class LastingDriver(driver_class):  # type: ignore[misc, valid-type]
        def __init__(self, app: App[Any], **options: Any) -> None:
            super().__init__(app, **options)
            terminal: IO[str] = vars(self)["_file"]  # of every driver that writes to a terminal
            self._file = LastingFile(terminal, cast(LosesTerminal, app).terminal_is_lost)

    return LastingDriver
