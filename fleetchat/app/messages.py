"""Textual messages that are not a widget's own."""

from __future__ import annotations

from textual.message import Message

from fleetchat.app.events import RuntimeEvent, SnapshotTaken


class RuntimeNews(Message, bubble=False):
    """An event of the runtime, on its way to the chat screen."""

    def __init__(self, event: RuntimeEvent) -> None:
        super().__init__()
        self.event = event

    def can_replace(self, message: Message) -> bool:
        """A newer snapshot stands for an older one; nothing else may be lost."""
        return (
            isinstance(message, RuntimeNews)
            and isinstance(message.event, SnapshotTaken)
            and isinstance(self.event, SnapshotTaken)
        )
