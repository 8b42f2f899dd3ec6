"""Foreign text fit to stand in a line, in exactly so many cells (pure)."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from fleetchat.chat.sanitise import sanitise


def one_line(text: str) -> str:
    """Text of a peer, fit to stand in a line: no control characters, no line breaks."""
    return " ".join(sanitise(text).split())


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells, cut with `…`."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(set_cell_size(text, max(0, width - 1)).rstrip() + "…", width)
    padding = " " * (width - length)
    return padding + text if right else text + padding
