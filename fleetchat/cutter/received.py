"""Shards that a peer was sent: `received/<build key>/` has the manifest and the files of its own stages.

A file grows under another name, is hashed as it grows, and gets its own name when its hash is right. What was
kept of a file when a link broke is taken up again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from fleetchat.cutter.files import CHUNK, replace, sha256_of
from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.manifest_file import from_json
from fleetchat.cutter.store import MANIFEST, Store, files_of, names_are_plain
from fleetchat.errors import InputError, ShardDamaged
from fleetchat.ids import BuildKey

LARGEST_MANIFEST = 4 << 20  # bytes
SYNCED_EVERY = 64 << 20  # bytes: so the last flush of a large file takes no minutes
KEPT_FREE = 64 << 20  # bytes that stay free on the disk


class ReceivedStore(Store):
    """A store whose builds lack what other peers serve."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.build_folder = root / "received"

    def holds(self, manifest: Manifest, stage: int) -> bool:
        """Whether the files of a stage are here; only their sizes are compared."""
        folder = self.folder(manifest.build_key)
        try:
            return all((folder / file.name).stat().st_size == file.size for file in files_of(manifest, stage))
        except OSError:
            return False

    def stages_of(self, manifest: Manifest) -> list[int]:
        """Numbers of the stages that are here."""
        return [entry.index for entry in manifest.stages if self.holds(manifest, entry.index)]


class PeerStore:
    """All that a peer can serve: what was built on this machine, and what it was sent."""

    def __init__(self, root: Path) -> None:
        self._built = Store(root)
        self._received = ReceivedStore(root)

    def builds(self) -> list[Manifest]:
        """Of which something is here."""
        received = self._received.builds()
        return [*self._built.builds(), *(one for one in received if self._received.stages_of(one))]

    def find(self, build_key: BuildKey, stage: int) -> Manifest | None:
        """The build, when the shard of that stage is here. What was sent last counts."""
        received = self._received.find(build_key)
        if received is not None and self._received.holds(received, stage):
            return received
        return self._built.find(build_key)

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        """The IR of a stage of a build that `find` gave."""
        return self._place(manifest, index).stage_xml(manifest, index)

    def verify(self, manifest: Manifest, stage: int) -> None:
        """Raises ShardDamaged."""
        self._place(manifest, stage).verify(manifest, stage)

    def begin(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> Reception:
        """Take up the files of a shard where they were left. Raises InputError, BuildError (no space)."""
        if self._is_built(build_key, stage, files):
            return Reception(self._built.folder(build_key), build_key, stage, files)
        folder = self._received.folder(build_key)
        self._received.check_space(sum(file.size for file in files) + KEPT_FREE)
        folder.mkdir(parents=True, exist_ok=True)
        return Reception(folder, build_key, stage, files)

    def _is_built(self, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> bool:
        """Whether this machine has cut the same model in the same way: then nothing needs to be sent."""
        manifest = self._built.find(build_key)
        if manifest is None or stage >= len(manifest.stages):
            return False
        try:
            self._built.verify(manifest, stage)
        except ShardDamaged:
            return False
        return tuple(files[1:]) == files_of(manifest, stage)

    def _place(self, manifest: Manifest, stage: int) -> Store:
        received = self._received.find(manifest.build_key)
        mine = received == manifest and self._received.holds(manifest, stage)
        return self._received if mine else self._built


class Reception:
    """The files of one shard as they arrive. One at a time a thread calls it; close it at the end.

    `offsets` says how much of each file is here.
    """

    def __init__(self, folder: Path, build_key: BuildKey, stage: int, files: Sequence[StoredFile]) -> None:
        check_offer(files)
        self._folder = folder
        self._build_key = build_key
        self._stage = stage
        self._files = tuple(files)
        self.offsets = [0] * len(files)
        self._unsynced = 0  # bytes written since the last flush to the disk
        self._growing: tuple[int, BinaryIO, hashlib._Hash] | None = None
        for number, file in enumerate(files):
            self.offsets[number] = self._kept(file)
        if self.offsets[0] == files[0].size:
            self._check_manifest()
        for number, file in enumerate(files):
            if 0 < self.offsets[number] < file.size:
                self._open(number)  # what is here is hashed now: the other side waits for the offsets
                break

    @property
    def complete(self) -> bool:
        """Whether every file is here, with the right hash."""
        return all(offset == file.size for offset, file in zip(self.offsets, self._files, strict=True))

    @property
    def bytes_here(self) -> int:
        return sum(self.offsets)

    @property
    def bytes_wanted(self) -> int:
        return sum(file.size for file in self._files)

    def write(self, number: int, offset: int, payload: bytes | bytearray | memoryview) -> None:
        """Append to a file; the last bytes complete it.

        Raises InputError for bytes that do not come next, ShardDamaged when the hash is wrong (the file then
        begins anew).
        """
        if number >= len(self._files) or offset != self.offsets[number]:
            raise InputError("bytes of a file came that do not come next")
        if number and self.offsets[0] != self._files[0].size:
            raise InputError("the manifest must come before the files that it describes")
        if offset + len(payload) > self._files[number].size:
            raise InputError("a file grew larger than it was offered")
        stream, digest = self._open(number)
        stream.write(payload)
        digest.update(payload)
        self.offsets[number] += len(payload)
        self._unsynced += len(payload)
        if self._unsynced >= SYNCED_EVERY:
            os.fsync(stream.fileno())
            self._unsynced = 0
        if self.offsets[number] == self._files[number].size:
            self._finish(number, stream, digest)

    def close(self) -> None:
        """Keep what is here for the next time."""
        if self._growing is not None:
            self._growing[1].close()
            self._growing = None

    def _kept(self, file: StoredFile) -> int:
        """How much of a file is here. A file with another hash is removed."""
        target, partial = self._folder / file.name, self._partial(file)
        try:
            if target.exists():
                if target.stat().st_size == file.size and sha256_of(target) == file.sha256:
                    return file.size
                target.unlink()
            if partial.exists():
                size = partial.stat().st_size
                if size < file.size:
                    return size
                partial.unlink()
        except OSError as error:
            raise InputError(f"{target} cannot be used: {error.strerror or error}") from error
        return 0

    def _open(self, number: int) -> tuple[BinaryIO, hashlib._Hash]:
        if self._growing is not None and self._growing[0] == number:
            return self._growing[1:]
        self.close()
        partial = self._partial(self._files[number])
        digest = hashlib.sha256()
        if self.offsets[number]:
            with partial.open("rb", buffering=0) as stream:
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
        growing = partial.open("ab", buffering=0)
        self._growing = number, growing, digest
        return growing, digest

    def _finish(self, number: int, stream: BinaryIO, digest: hashlib._Hash) -> None:
        file, partial = self._files[number], self._partial(self._files[number])
        os.fsync(stream.fileno())
        self.close()
        if digest.hexdigest() != file.sha256:
            partial.unlink()
            self.offsets[number] = 0
            raise ShardDamaged(f"{file.name} arrived damaged: its SHA-256 is not the one that was told")
        replace(partial, self._folder / file.name)
        if number == 0:
            self._check_manifest()

    def _check_manifest(self) -> None:
        """The manifest must be of this build, and must describe the offered files. Else it is removed."""
        path = self._folder / MANIFEST
        try:
            manifest = from_json(Manifest, path.read_text(encoding="utf-8"))
            good = manifest.build_key == self._build_key and self._stage < len(manifest.stages)
            good = good and names_are_plain(manifest) and files_of(manifest, self._stage) == self._files[1:]
        except (OSError, ValueError):
            good = False
        if not good:
            path.unlink(missing_ok=True)
            raise InputError("the manifest that came does not describe the shard that was offered")

    def _partial(self, file: StoredFile) -> Path:
        return self._folder / f".{file.name}.{file.sha256[:16]}.part"


def check_offer(files: Sequence[StoredFile]) -> None:
    """Raises InputError unless it is a manifest of sensible size and the two files of a shard."""
    if len(files) != 3 or files[0].name != MANIFEST:
        raise InputError("an offer names a manifest and the two files of a shard")
    if files[0].size > LARGEST_MANIFEST:
        raise InputError(f"a manifest of {files[0].size:,} bytes is too large to be one")
    if any(file.name in ("", ".", "..") or Path(file.name).name != file.name for file in files):
        raise InputError("the name of a file must not lead elsewhere")
