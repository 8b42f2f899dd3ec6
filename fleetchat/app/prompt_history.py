"""What was typed before, and a walk through it (pure)."""

from __future__ import annotations

from collections.abc import Sequence

LIMIT = 500


class PromptHistory:
    """Shared by all prompts, the oldest first."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        if not self.texts or self.texts[-1] != text:
            self.texts = [*self.texts, text][-LIMIT:]

    def restore(self, texts: Sequence[str]) -> None:
        """What earlier runs left; it comes before what was typed in this one."""
        self.texts = [*texts, *self.texts][-LIMIT:]


class HistoryWalk:
    """One prompt's place in the history. What was being typed stands behind the newest entry."""

    def __init__(self, history: PromptHistory) -> None:
        self._history = history
        self._back = 0  # steps from the end, 0 = what is being typed
        self._draft = ""

    def restart(self) -> None:
        self._back = 0

    def older(self, typed: str) -> str | None:
        """The text one step back; None at the oldest."""
        if self._back >= len(self._history.texts):
            return None
        if self._back == 0:
            self._draft = typed
        self._back += 1
        return self._history.texts[-self._back]

    def newer(self) -> str | None:
        """The text one step forward, at last what was being typed; None when that is shown already."""
        if self._back == 0:
            return None
        self._back -= 1
        return self._history.texts[-self._back] if self._back else self._draft
