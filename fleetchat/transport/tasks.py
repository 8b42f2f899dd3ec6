"""A nursery whose failures keep their own type.

Trio wraps every exception that leaves a nursery in an ExceptionGroup. Callers decide by type
(`PeerLost`, `PromptError`), so the cause is taken out again at the border.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio

from fleetchat.errors import FleetchatError


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """All exceptions in a group, groups inside it opened."""
    for member in group.exceptions:
        if isinstance(member, BaseExceptionGroup):
            yield from leaves(member)
        else:
            yield member


def cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to raise instead of a group: an interrupt, else an unexpected fault, else our first failure.

    A failure that only follows from another one (a link closed because a task died) is ours and
    comes after what is not.
    """
    found = [leaf for leaf in leaves(group) if not isinstance(leaf, trio.Cancelled)]
    if not found:
        return group
    interrupts = [leaf for leaf in found if not isinstance(leaf, Exception)]
    unexpected = [leaf for leaf in found if not isinstance(leaf, FleetchatError)]
    return (interrupts or unexpected or found)[0]


@asynccontextmanager
async def open_tasks() -> AsyncIterator[trio.Nursery]:
    """`trio.open_nursery()` that raises the cause instead of a group."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        raise cause_of(group) from None
