"""What a data link may carry, computed the same way on both of its ends."""

from __future__ import annotations

from fleetchat.wire.batches import largest_forward, largest_result
from fleetchat.wire.frames import MAX_BODY, Limits, Open


def upstream_limits(opened: Open) -> Limits:
    """Of the link into the stage that got this OPEN (FORWARD)."""
    return _forward_limits(opened, hidden=opened.hidden if opened.stage else 0)


def downstream_limits(opened: Open) -> Limits:
    """Of the link out of that stage: FORWARD to the next one, or RESULT from the last one."""
    if opened.stage < opened.stages - 1:
        return _forward_limits(opened, hidden=opened.hidden)
    return Limits(
        max_body=largest_result(opened.max_slices, opened.stages),
        max_rows=opened.max_rows,
        max_slices=opened.max_slices,
        hidden=0,
        wire_dtype=opened.wire_dtype,
        vocabulary=opened.vocabulary,
    )


def _forward_limits(opened: Open, hidden: int) -> Limits:
    largest = largest_forward(opened.max_rows, opened.max_slices, hidden, opened.wire_dtype, opened.stages)
    return Limits(
        max_body=min(largest, MAX_BODY),
        max_rows=opened.max_rows,
        max_slices=opened.max_slices,
        hidden=hidden,
        wire_dtype=opened.wire_dtype,
        vocabulary=opened.vocabulary,
    )
