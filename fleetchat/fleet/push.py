"""A peer that lacks its shard gets it: over a link of its own, from where the last attempt ended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import trio

from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.store import MANIFEST, files_of
from fleetchat.errors import (
    PeerLost,
    PeerRefused,
    PeerUnreachable,
    RemoteProtocolError,
    ShardDamaged,
)
from fleetchat.ids import Address, StageIndex
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.codec import CHUNK_HEAD
from fleetchat.wire.frames import (
    Chunk,
    Error,
    FaultCode,
    Goodbye,
    Have,
    Kept,
    Limits,
    Offer,
    ShardFile,
    Stored,
)
from fleetchat.wire.shard_frames import LEAST_CHUNK, MAX_CHUNK
from fleetchat.wire.states import Purpose

WINDOW = 8  # chunks under way: what a broken link costs at most
SHARE = 800  # a chunk is this part of the shard, so a broken link costs a hundredth of it
SILENCE = 30.0  # seconds without an acknowledgement
HASHING_RATE = 50e6  # bytes a second, on a slow disk: a peer looks at what it has before it answers
NOTE_INTERVAL = 0.25  # seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """When a broken link is dialled again: `attempts` in a row that bring nothing are the end."""

    attempts: int = 6
    pause: float = 0.25  # seconds before the second attempt, doubled for each further one
    longest_pause: float = 5.0

    def after(self, failures: int) -> float | None:
        """Seconds to wait after so many failures in a row; None = give up."""
        return (
            None if failures >= self.attempts else min(self.pause * 2.0 ** (failures - 1), self.longest_pause)
        )


@dataclass(frozen=True, slots=True)
class Shard:
    """What one peer is to get. `folder` is that of the build."""

    manifest: Manifest
    stage: int
    folder: Path

    def files(self) -> tuple[StoredFile, ...]:
        """The manifest and the files of the stage. Reads the manifest."""
        content = (self.folder / MANIFEST).read_bytes()
        manifest = StoredFile(MANIFEST, len(content), hashlib.sha256(content).hexdigest())
        return (manifest, *files_of(self.manifest, self.stage))


@dataclass(slots=True)
class Delivery:
    """How far it is. `here` counts what the peer has, `sent` what went over its links."""

    total: int
    here: int = 0
    sent: int = 0


async def push_shard(
    address: Address,
    key: bytes,
    shard: Shard,
    *,
    on_progress: Callable[[Delivery], None] = lambda delivery: None,
    patience: Patience = Patience(),
) -> Delivery:
    """Bring a shard to a peer; nothing is sent of what it has already.

    A link that breaks is dialled again. Raises PeerUnreachable, PeerLost, PeerRefused, AuthenticationFailed.
    """
    try:
        files = await trio.to_thread.run_sync(shard.files)
    except OSError as error:
        raise ShardDamaged(f"the shard cannot be read: {error.strerror or error}") from error
    delivery = Delivery(sum(file.size for file in files))
    failures = damaged = 0
    while True:
        before = delivery.here
        try:
            await _attempt(address, key, shard, files, delivery, on_progress)
            return delivery
        except (PeerLost, PeerUnreachable) as failure:
            failures = 1 if delivery.here > before else failures + 1
            damaged += isinstance(failure, _ArrivedDamaged)
            pause = patience.after(failures)
            if pause is None or damaged > 1:
                raise PeerLost(
                    f"the shard of stage {shard.stage} did not get through to {address}: {failure.message}",
                    hint=failure.hint or "what arrived is kept there; the next attempt goes on behind it",
                ) from failure
            await trio.sleep(pause)


class _ArrivedDamaged(PeerLost):
    """What the peer had kept was damaged there: it begins anew once. Twice, the file here is not right."""


async def _attempt(
    address: Address,
    key: bytes,
    shard: Shard,
    files: tuple[StoredFile, ...],
    delivery: Delivery,
    on_progress: Callable[[Delivery], None],
) -> None:
    link = await dial(address, key, purpose=Purpose.SHARD)
    try:
        size = chunk_size(delivery.total)
        link.set_limits(Limits(size + CHUNK_HEAD, max_rows=0, max_slices=0, hidden=0))
        offered = tuple(ShardFile(file.name, file.size, file.sha256) for file in files)
        await link.send(Offer(shard.manifest.build_key, StageIndex(shard.stage), offered, size))
        have = await _answer(link, SILENCE + delivery.total / HASHING_RATE, shard)
        if not isinstance(have, Have) or len(have.offsets) != len(files):
            raise RemoteProtocolError(f"{link} did not say what it has of the shard")
        offsets = list(have.offsets)
        delivery.here = sum(offsets)
        on_progress(delivery)
        await _send_files(link, shard, files, offsets, size, delivery, on_progress)
        await link.send(Goodbye("the shard is there"))
    finally:
        await link.aclose()


async def _send_files(
    link: Link,
    shard: Shard,
    files: tuple[StoredFile, ...],
    offsets: list[int],
    size: int,
    delivery: Delivery,
    on_progress: Callable[[Delivery], None],
) -> None:
    """Keep WINDOW chunks under way until the peer says that it has everything."""
    pieces = _pieces(files, offsets, size)
    under_way = 0
    noted = trio.current_time()
    with _Reader(shard.folder) as reader:
        while True:
            while under_way < WINDOW and (piece := next(pieces, None)) is not None:
                number, offset, length = piece
                payload = await trio.to_thread.run_sync(reader.read, files[number].name, offset, length)
                await link.send(Chunk(number, offset, payload))
                delivery.sent += length
                under_way += 1
            frame = await _answer(link, SILENCE, shard)
            if isinstance(frame, Stored):
                return
            if not isinstance(frame, Kept) or frame.file >= len(files):
                raise RemoteProtocolError(f"{link} answered a chunk with {type(frame).__name__}")
            under_way -= 1
            offsets[frame.file] = frame.offset
            delivery.here = sum(offsets)
            if trio.current_time() - noted >= NOTE_INTERVAL:
                noted = trio.current_time()
                on_progress(delivery)


async def _answer(link: Link, deadline: float, shard: Shard) -> Have | Kept | Stored:
    frame = None
    with trio.move_on_after(deadline):
        frame = await link.receive()
    match frame:
        case Have() | Kept() | Stored():
            return frame
        case Error(code=FaultCode.SHARD_DAMAGED):
            raise _ArrivedDamaged(f"{link}: {frame.text}", hint=frame.hint or None)
        case Error():
            raise PeerRefused(
                f"{link} does not take the shard of stage {shard.stage}: {frame.text}",
                hint=frame.hint or None,
            )
        case None:
            raise PeerLost(f"{link} did not answer for {deadline:.0f} s")
        case Goodbye():
            raise PeerLost(f"{link} left: {frame.reason}")
    raise RemoteProtocolError(f"{link} sent {type(frame).__name__} on a shard link")


def chunk_size(total: int) -> int:
    """Bytes of a chunk for a shard of `total` bytes."""
    return min(max(total // SHARE, LEAST_CHUNK), MAX_CHUNK)


def _pieces(files: tuple[StoredFile, ...], offsets: list[int], size: int) -> Iterator[tuple[int, int, int]]:
    """File, offset and length of all that is missing, in order."""
    for number, file in enumerate(files):
        for offset in range(offsets[number], file.size, size):
            yield number, offset, min(size, file.size - offset)


class _Reader:
    """Reads pieces of files one after the other; keeps one of them open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: tuple[str, BinaryIO] | None = None

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._open is not None:
            self._open[1].close()

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Raises ShardDamaged for a file that has become shorter."""
        if self._open is None or self._open[0] != name:
            self.__exit__()
            self._open = name, (self._folder / name).open("rb", buffering=0)
        stream = self._open[1]
        stream.seek(offset, os.SEEK_SET)
        payload = stream.read(length)
        if payload is None or len(payload) != length:
            raise ShardDamaged(f"{self._folder / name} is shorter than its manifest says")
        return payload
