"""Python's collector of garbage stops the whole program while it looks: let it look at little, and seldom."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetchat.app.events import Report, RuntimeEvent

# New objects between two looks. Python's 700 are some 20 looks a second while four chats write, and each of
# the long ones, at the screen, the tokenizer and all modules, keeps keys and stages waiting for 0.1 s.
NEW_OBJECTS = 10_000


def sparing_collector(report: Report) -> Report:
    """`report`, but once a fleet is ready, what is there by then is not looked at any more."""
    from fleetchat.app.events import FleetReady

    def pass_on(event: RuntimeEvent) -> None:
        if isinstance(event, FleetReady):
            spare_what_is_there()
        report(event)

    return pass_on


def spare_what_is_there() -> None:
    """Collect a last time, and keep what is left out of every later look."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
