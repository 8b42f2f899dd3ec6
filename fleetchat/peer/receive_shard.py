"""A peer gets its shard over a link of its own: what comes is checked, written, hashed and acknowledged."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import trio

from fleetchat.cutter.manifest import StoredFile
from fleetchat.errors import BuildError, InputError, PeerLost, RemoteProtocolError, ShardDamaged
from fleetchat.ids import BuildKey, StageIndex
from fleetchat.peer.loading import Reception, ShardStore
from fleetchat.transport.link import Link
from fleetchat.wire.codec import CHUNK_HEAD
from fleetchat.wire.frames import Chunk, Error, FaultCode, Goodbye, Have, Kept, Limits, Offer, Stored

SILENCE = 60.0  # seconds without a chunk after which a link is given up
REFUSAL_DEADLINE = 2.0  # seconds for the other side to read a refusal
TOLD_EVERY = 0.1  # of the shard: how often the log says how far it is

_log = logging.getLogger(__name__)


class ShardReceiver:
    """Takes shards into the store; two links that bring the same one come one after the other."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store
        self._locks: defaultdict[tuple[BuildKey, StageIndex], trio.Lock] = defaultdict(trio.Lock)

    async def serve(self, link: Link, first_frame_deadline: float) -> None:
        """One link from its OFFER to its end. Raises PeerLost, RemoteProtocolError."""
        offer = None
        with trio.move_on_after(first_frame_deadline):
            offer = await link.receive()
        if not isinstance(offer, Offer):
            raise RemoteProtocolError(f"{link} opened a shard link and offered nothing")
        async with self._locks[offer.build_key, offer.stage]:
            try:
                await self._take(link, offer)
            except (InputError, BuildError, ShardDamaged) as refusal:
                _log.info("%s: the shard of stage %d was not taken: %s", link, offer.stage, refusal.message)
                code = FaultCode.SHARD_DAMAGED if isinstance(refusal, ShardDamaged) else FaultCode.NO_SHARD
                await _refuse(link, Error(code, refusal.message, refusal.hint or ""))
            except OSError as error:
                text = f"the peer cannot store the shard: {error.strerror or error}"
                _log.warning("%s: %s", link, text)
                await _refuse(link, Error(FaultCode.NO_SHARD, text))

    async def _take(self, link: Link, offer: Offer) -> None:
        files = tuple(StoredFile(*file) for file in offer.files)
        reception = await trio.to_thread.run_sync(self._store.begin, offer.build_key, offer.stage, files)
        try:
            link.set_limits(Limits(offer.chunk + CHUNK_HEAD, max_rows=0, max_slices=0, hidden=0))
            await link.send(Have(tuple(reception.offsets)))
            await self._receive(link, reception, _teller(link, offer, reception))
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(reception.close)

    @staticmethod
    async def _receive(link: Link, reception: Reception, tell: Callable[[], None]) -> None:
        while not reception.complete:
            frame = None
            with trio.move_on_after(SILENCE):
                frame = await link.receive()
            match frame:
                case Chunk():
                    await trio.to_thread.run_sync(reception.write, frame.file, frame.offset, frame.payload)
                    tell()
                    await link.send(Kept(frame.file, reception.offsets[frame.file]))
                case Goodbye():
                    return
                case None:
                    raise PeerLost(f"{link} sent nothing of a shard for {SILENCE:g} s")
                case _:
                    raise RemoteProtocolError(f"{type(frame).__name__} on a shard link")
        await link.send(Stored())


async def _refuse(link: Link, error: Error) -> None:
    """Say why, and read what is under way: a link that closes before that would take the reason with it."""
    await link.send(error)
    with trio.move_on_after(REFUSAL_DEADLINE), suppress(PeerLost):
        while not isinstance(await link.receive(), Goodbye):
            pass


def _teller(link: Link, offer: Offer, reception: Reception) -> Callable[[], None]:
    """Says in the log how far the shard is: first, last, and at each tenth that takes a second."""
    wanted = reception.bytes_wanted
    told, told_at = reception.bytes_here, trio.current_time()
    what = f"the shard of stage {offer.stage} from {link}"
    if told < wanted:
        _log.info("receiving %s: %s of %s are here", what, _size(told), _size(wanted))

    def tell() -> None:
        nonlocal told, told_at
        here, now = reception.bytes_here, trio.current_time()
        if here == wanted or (here - told >= TOLD_EVERY * wanted and now - told_at >= 1):
            told, told_at = here, now
            _log.info("receiving %s: %.0f %% of %s", what, 100 * here / wanted, _size(wanted))

    return tell


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
