"""What is known of the fleet on the screen's side (pure)."""

from __future__ import annotations

from fleetchat.app.panel.history import BlockHistory
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.timeline import Block


class PanelModel:
    """The newest view, and the blocks of the last minutes."""

    def __init__(self) -> None:
        self.view: PanelView | None = None
        self.blocks = BlockHistory()

    def take(self, view: PanelView) -> list[Block]:
        """A newer view; returns the blocks that it brought."""
        self.view = view
        return self.blocks.take(view.snapshot.timeline) if view.snapshot.timeline is not None else []

    def forget(self) -> None:
        """The fleet is gone."""
        self.view = None
        self.blocks = BlockHistory()
