"""The thread between Textual and trio: the only file that knows both worlds.

Towards trio everything goes by `TrioToken.run_sync_soon`, towards the screen by the `report` that the
screen gave (it posts a message). Nobody waits for the other, but `shutdown` for a limited time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from fleetchat.app.events import ChatNumber, Report, RuntimeFailed
from fleetchat.chat.turn import Turn
from fleetchat.errors import InputError

if TYPE_CHECKING:  # trio is imported by the thread, after the first paint
    import trio

    from fleetchat.app.runtime import ChatRuntime

# Seconds after which the screen, which draws for many milliseconds, lets the thread of the chain in: the 5 ms
# that Python takes would be added to the way of a token through the chain.
SWITCH_INTERVAL = 0.0005


class FleetChanges(Protocol):
    """Writes what the fleet follows; every method says what to tell. They may raise FleetchatError."""

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str: ...

    def add_peer(self, address: str, name: str) -> str: ...

    def remove_peer(self, which: str) -> str: ...


MakeRuntime = Callable[[Report], "ChatRuntime"]


class RuntimeThread:
    """Runs a ChatRuntime in a daemon thread of its own; implements `events.RuntimeControl`."""

    def __init__(
        self,
        make_runtime: MakeRuntime,
        models: Callable[[], Sequence[tuple[str, str]]] = tuple,
        changes: FleetChanges | None = None,
    ) -> None:
        """`make_runtime` is called on the thread: what it imports does not delay the screen.

        `models` gives name and title of what can be switched to; `changes` writes what the fleet follows.
        """
        self._changes = changes
        self._make_runtime = make_runtime
        self._models = models
        self._lock = threading.Lock()  # guards the four below
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None
        self._runtime: ChatRuntime | None = None
        self._leaving = False
        self._thread: threading.Thread | None = None
        self._report: Report | None = None

    def start(self, report: Report) -> None:
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the runtime runs already")
        self._report = report
        sys.setswitchinterval(SWITCH_INTERVAL)
        # A daemon: whatever hangs in it must not keep the process; `shutdown` gives it time to clean up.
        self._thread = threading.Thread(
            target=self._run, args=(report,), name="fleetchat-runtime", daemon=True
        )
        self._thread.start()

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        self._call(lambda runtime: runtime.submit(chat, turn))

    def stop(self, chat: ChatNumber) -> None:
        self._call(lambda runtime: runtime.stop(chat))

    def close_chat(self, chat: ChatNumber) -> None:
        self._call(lambda runtime: runtime.close_chat(chat))

    def models(self) -> Sequence[tuple[str, str]]:
        return self._models()

    def propose_cut(self) -> None:
        self._call(lambda runtime: runtime.propose_cut())

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str:
        return self._changed().write_cut(cut)

    def add_peer(self, address: str, name: str) -> str:
        return self._changed().add_peer(address, name)

    def remove_peer(self, which: str) -> str:
        return self._changed().remove_peer(which)

    def _changed(self) -> FleetChanges:
        if self._changes is None:
            raise InputError("this chat's fleet cannot be changed")
        return self._changes

    def switch(self, model: str) -> None:
        self._call(lambda runtime: runtime.switch(model))

    def retry(self) -> None:
        if self._thread is not None and self._report is not None and not self._thread.is_alive():
            self.start(self._report)  # not even the runtime could be made
        else:
            self._call(lambda runtime: runtime.retry())

    def shutdown(self, timeout: float) -> bool:
        with self._lock:
            self._leaving = True
            scope = self._scope
        if scope is not None:
            self._run_sync_soon(scope.cancel)
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _call(self, command: Callable[[ChatRuntime], None]) -> None:
        runtime = self._runtime
        if runtime is not None:
            self._run_sync_soon(lambda: command(runtime))

    def _run_sync_soon(self, function: Callable[[], object]) -> None:
        import trio

        token = self._token
        if token is None:
            return
        try:
            token.run_sync_soon(function)
        except trio.RunFinishedError:
            return  # the runtime has ended; there is nothing left to ask of it

    def _run(self, report: Report) -> None:
        import trio

        try:
            trio.run(self._main, report)
        except BaseException as error:  # the thread's last line: the screen must hear of it
            from fleetchat.app.explain import explained

            if isinstance(error, Exception):
                report(RuntimeFailed(*explained(error)))
            else:
                report(RuntimeFailed(f"the runtime ended: {type(error).__name__}", "leave with Ctrl+Q"))

    async def _main(self, report: Report) -> None:
        import trio

        with trio.CancelScope() as scope:
            runtime = self._make_runtime(report)
            with self._lock:
                if self._leaving:
                    return
                self._token = trio.lowlevel.current_trio_token()
                self._scope = scope
                self._runtime = runtime
            await runtime.run()
