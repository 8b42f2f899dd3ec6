"""The sessions of one chain on one stage: orders that travel in-band, compaction, counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fleetchat.engine.interface import StageEngine
from fleetchat.errors import SliceFailed
from fleetchat.ids import ChainId, SessionId, SessionKey
from fleetchat.peer.history import TokenHistory
from fleetchat.wire.frames import Cancel, Close, Compact, FaultCode, Fork, InBand, SessionStats

SESSION_LIMIT = 256
"""Sessions of one chain. Cells alone do not bound them: each costs an engine megabytes, however short."""


class ChainSessions:
    """All calls but `statistics` come from the stage's inference thread."""

    def __init__(
        self, engine: StageEngine, chain: ChainId, history: TokenHistory, *, keeps_history: bool
    ) -> None:
        self._engine = engine
        self._chain = chain
        self._history = history
        self._keeps_history = keeps_history
        self._statistics: dict[SessionId, tuple[int, int, int]] = {}  # length, live, dead
        self._compacting: deque[SessionId] = deque()  # next one first
        self._broken: dict[SessionId, tuple[str, str]] = {}
        self.cells_used = 0  # physical, of all sessions

    def carry_out(self, frame: InBand) -> None:
        """A fault has no answer in-band: it is kept for the session's next slice."""
        session = frame.new if isinstance(frame, Fork) else frame.session
        if isinstance(frame, Cancel):
            self._guarded(session, lambda: self._cancel(frame))
        elif isinstance(frame, Close):
            self._close(session)
            return
        elif isinstance(frame, Compact):
            if session not in self._compacting and session in self._statistics:
                self._compacting.append(session)
        else:
            self._guarded(session, lambda: self._fork(frame))
        self.note(session)

    def broken(self, session: SessionId) -> tuple[str, str] | None:
        """(code, text) of what failed outside a slice; it lasts until the session is closed."""
        return self._broken.get(session)

    def refusal(self, session: SessionId) -> tuple[str, str] | None:
        """(code, text) when there is no room for another session."""
        if session in self._statistics or len(self._statistics) < SESSION_LIMIT:
            return None
        return FaultCode.OVERFLOW, f"more than {SESSION_LIMIT} sessions of one chain"

    @property
    def compacting(self) -> bool:
        return bool(self._compacting)

    def compaction_step(self) -> None:
        """One step of the session whose turn it is."""
        if not self._compacting:
            return
        session = self._compacting.popleft()
        if not self._compact_once(session):
            self._compacting.append(session)

    def finish_compaction(self, session: SessionId) -> None:
        """Whoever needs the session now finishes its copy first."""
        if session in self._compacting:
            self._compacting.remove(session)
            while not self._compact_once(session):
                pass

    def note(self, session: SessionId) -> tuple[int, int]:
        """Take down the session's counters: (live, dead)."""
        key = self._key(session)
        cells = self._engine.cells(key)
        live, dead = cells.live, cells.dead
        before = self._statistics.get(session)
        if before is not None:
            self.cells_used -= before[1] + before[2]
        elif not live + dead:
            return 0, 0
        self.cells_used += live + dead
        self._statistics[session] = (self._engine.length(key), live, dead)
        return live, dead

    def statistics(self) -> tuple[SessionStats, ...]:
        noted = list(self._statistics.items())  # at once: the inference thread goes on
        return tuple(SessionStats(session, *numbers) for session, numbers in noted)

    def free(self) -> None:
        for key in self._engine.sessions():
            if key.chain == self._chain:
                self._engine.forget(key)
        self._statistics.clear()
        self._compacting.clear()
        self._broken.clear()
        self.cells_used = 0

    def _key(self, session: SessionId) -> SessionKey:
        return SessionKey(self._chain, session)

    def _guarded(self, session: SessionId, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # an engine may raise anything
            if len(self._broken) < SESSION_LIMIT:
                self._broken[session] = fault_of(error)

    def _compact_once(self, session: SessionId) -> bool:
        """True when there is nothing left to do."""
        done = True

        def step() -> None:
            nonlocal done
            done = self._engine.compact(self._key(session))

        self._guarded(session, step)
        if done:
            self.note(session)
        return done

    def _cancel(self, frame: Cancel) -> None:
        self.finish_compaction(frame.session)
        key = self._key(frame.session)
        if frame.keep < self._engine.length(key):
            self._engine.truncate(key, frame.keep)

    def _close(self, session: SessionId) -> None:
        if session in self._compacting:
            self._compacting.remove(session)
        self._guarded(session, lambda: self._engine.forget(self._key(session)))
        self._broken.pop(session, None)
        self._history.forget(session)
        noted = self._statistics.pop(session, None)
        if noted is not None:
            self.cells_used -= noted[1] + noted[2]

    def _fork(self, frame: Fork) -> None:
        new, source = self._key(frame.new), self._key(frame.source)
        held = self._engine.length(source)
        if (refusal := self.refusal(frame.new)) is not None:
            raise SliceFailed(*refusal)
        if self._engine.length(new) or frame.new in self._statistics:
            raise SliceFailed(FaultCode.DESYNC, f"session {frame.new} is in use, it cannot become a fork")
        if frame.length > held:
            raise SliceFailed(FaultCode.GAP, f"a fork of {frame.length} positions out of {held}")
        self.finish_compaction(frame.source)
        self._engine.fork(new, source, frame.length)
        if self._keeps_history:
            self._history.copy(frame.new, frame.source, frame.length)


def fault_of(error: Exception) -> tuple[str, str]:
    """An exception as the (code, text) that travels."""
    if isinstance(error, SliceFailed):
        return error.code, error.message
    return FaultCode.EXCEPTION, f"{type(error).__name__}: {error}"
