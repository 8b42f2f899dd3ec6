"""The link that a stage dials: to the next stage of its chain."""

from __future__ import annotations

from contextlib import suppress

import trio

from fleetchat.errors import (
    FleetError,
    PeerLost,
    PeerRefused,
    PeerUnreachable,
    ProtocolError,
    RemoteProtocolError,
)
from fleetchat.ids import Address, StageIndex
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Attach, Attached, AttachRole, Error, Frame, Goodbye, NotYet, Open
from fleetchat.wire.states import Purpose

CONNECT_DEADLINE = 20.0  # seconds, in all: the other stage may still be waiting for its OPEN
RETRY_INTERVAL = 0.05  # seconds; the coordinator's OPEN is on its way to the other stage
GOODBYE_DEADLINE = 0.5  # seconds, for the frame before it as well


async def connect_next(open_: Open, address: Address, stage: StageIndex, key: bytes) -> Link:
    """Attach to the next stage as its upstream.

    Asks again after NOT_YET and while nobody listens there. Raises PeerUnreachable after the deadline,
    AuthenticationFailed, PeerRefused, RemoteProtocolError.
    """
    attach = Attach(open_.chain, open_.epoch, stage, AttachRole.UPSTREAM)
    last = "it has not been asked to serve this chain"
    with trio.move_on_after(CONNECT_DEADLINE):
        while True:
            try:
                link = await _try_to_attach(address, attach, key)
            except (PeerUnreachable, PeerLost) as error:
                last = error.message
                link = None
            if link is not None:
                return link
            await trio.sleep(RETRY_INTERVAL)
    raise PeerUnreachable(
        f"stage {open_.stage} cannot reach stage {stage} at {address} within {CONNECT_DEADLINE:g} s: {last}",
        hint="the address of a peer must be reachable from the other peers, not only from the chat",
    )


async def _try_to_attach(address: Address, attach: Attach, key: bytes) -> Link | None:
    """None after NOT_YET."""
    link = await dial(address, key, purpose=Purpose.DATA)
    try:
        await link.send(attach)
        answer = await link.receive()
        if isinstance(answer, Attached):
            return link
    except BaseException:
        await close_now(link)
        raise
    await close_now(link)
    if isinstance(answer, NotYet):
        return None
    raise _refusal(answer, attach.stage, address)


def _refusal(answer: Frame, stage: StageIndex, address: Address) -> FleetError:
    if isinstance(answer, Error):
        return PeerRefused(f"stage {stage} at {address} refused: {answer.text}", hint=answer.hint or None)
    if isinstance(answer, Goodbye):
        return PeerLost(f"stage {stage} at {address} left: {answer.reason}")
    return RemoteProtocolError(f"stage {stage} at {address} answered ATTACH with {type(answer).__name__}")


async def announce_end(link: Link, reason: str) -> None:
    """Say GOODBYE, also when the caller is being cancelled. Never raises."""
    with trio.move_on_after(GOODBYE_DEADLINE, shield=True):
        with suppress(PeerLost, ProtocolError):  # already closed, or said: then there is nobody to tell
            await link.send(Goodbye(reason))


async def say_goodbye(link: Link, reason: str) -> None:
    """Announce an orderly end and close, also when the caller is being cancelled. Never raises."""
    await announce_end(link, reason)
    await close_now(link)


async def close_now(link: Link) -> None:
    with trio.CancelScope(shield=True):
        await link.aclose()
