"""Widgets that are laid out once for every change."""

from __future__ import annotations

from textual.geometry import Size
from textual.widget import Widget


class SettledSize(Widget):
    """Textual lays the whole screen out a second time when the first time changed the size of a content.

    Nothing here depends on that size but scrollbars, and a scrollbar that comes or goes asks for it itself.
    """

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)
