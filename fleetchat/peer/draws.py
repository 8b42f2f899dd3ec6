"""The tokens that a slice draws on the last stage: which rows, which positions, where to stop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.accept import accept
from fleetchat.engine.sampling import draw_token
from fleetchat.peer.history import TokenHistory
from fleetchat.wire.frames import Draw, Slice


def draw_slice(
    slice_: Slice, draw: Draw, logits: NDArray[np.float32], history: TokenHistory
) -> tuple[int, int]:
    """Accepted drafts and the token drawn after them.

    `logits` are of the last `drafts + 1` rows; row i of the slice (from 0) draws position
    first + i + 1. The history holds the slice's ids already. Rows behind the first draft that was
    not drawn are not looked at: their context is void. Raises SliceFailed on logits that are not finite.
    """
    plain_rows = slice_.rows - slice_.drafts
    drafts = slice_.token_ids[plain_rows:].tolist()
    drawn: list[int] = []
    for index, row in enumerate(logits):
        position = slice_.first + plain_rows + index
        reply_ids = history.read(slice_.session, draw.reply_start, position)
        drawn.append(int(draw_token(row, position, draw, reply_ids)))
        if index < slice_.drafts and drawn[index] != drafts[index]:
            break
    accepted = accept(drafts, drawn)
    return accepted, drawn[accepted]
