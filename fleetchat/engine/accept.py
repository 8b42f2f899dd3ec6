"""Which drafts of a slice are accepted. Pure.

A draft is accepted when it equals the token that the model draws at its position. As the draw is
keyed by position, the tokens are those of a run without drafts, whatever was drafted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.sampling import draw_token
from fleetchat.wire.frames import Slice


def accept(drafts: Sequence[int], drawn: Sequence[int]) -> int:
    """Number of leading drafts that equal the drawn tokens; `drawn` may stop after its first mismatch."""
    for count, (draft, token) in enumerate(zip(drafts, drawn, strict=False)):
        if draft != token:
            return count
    return min(len(drafts), len(drawn))


def verify(
    item: Slice, logits: NDArray[np.floating], history: Sequence[int] | NDArray[np.integer]
) -> tuple[int, int]:
    """(accepted drafts, the token drawn after them) of a slice that draws.

    `logits` is [drafts + 1, vocabulary]: the last rows of the slice. `history` has the session's ids
    from position 0 on, the slice's own rows included, i.e. at least first + rows of them: the penalty at
    position p looks at those from `reply_start` to p - 1. Rows behind the first mismatch are not drawn.
    Raises SliceFailed("non-finite").
    """
    if item.draw is None or len(logits) != item.drafts + 1:
        raise ValueError(
            f"{len(logits)} rows of logits for a slice with {item.drafts} drafts, draw {item.draw}"
        )
    first_drawn = item.first + item.rows - item.drafts
    drafts = item.token_ids[item.rows - item.drafts :].tolist()
    for accepted in range(item.drafts + 1):
        position = first_drawn + accepted
        token = draw_token(logits[accepted], position, item.draw, history[item.draw.reply_start : position])
        if accepted == item.drafts or token != drafts[accepted]:
            return accepted, token
    raise AssertionError("unreachable: the last row always returns")
