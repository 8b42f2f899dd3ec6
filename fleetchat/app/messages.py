"""Textual messages that are not a widget's own."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from fleetchat.app.events import RuntimeEvent, SnapshotTaken


class NewsWaiting(Message, bubble=False):
    """The runtime has reported something since somebody looked last."""


class RuntimeNews(Message, bubble=False):
    """Events of the runtime, on their way to the chat screen: all that came together."""

    def __init__(self, events: Sequence[RuntimeEvent]) -> None:
        super().__init__()
        self.events = newest(events)


def newest(events: Sequence[RuntimeEvent]) -> tuple[RuntimeEvent, ...]:
    """A newer snapshot stands for those before it; nothing else may be lost (pure)."""
    last = max((place for place, event in enumerate(events) if isinstance(event, SnapshotTaken)), default=-1)
    return tuple(
        event for place, event in enumerate(events) if place == last or not isinstance(event, SnapshotTaken)
    )
