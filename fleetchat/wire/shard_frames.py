"""Frames of the links over which a peer gets its shard, and of those that measure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fleetchat.ids import BuildKey, StageIndex
from fleetchat.wire.checks import (
    MAX_FAULT_TEXT,
    MAX_NAME,
    MAX_ROWS,
    MAX_STAGES,
    U64,
    clean_field,
    require,
    require_hexadecimal,
    require_whole,
)

MAX_CHUNK = 1 << 20  # bytes
LEAST_CHUNK = 1 << 12
MAX_OFFERED = 8  # files; a shard is its manifest and two files
MAX_FILE_NAME = 128  # characters
MAX_WIDTH = 65_536  # of a measured layer
MAX_MEASURED_VALUES = 1 << 27  # weight values of a measured layer: 128 MB as int8


class ShardFile(NamedTuple):
    """A file as it is offered: its name, its size in bytes, its SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Coordinator -> peer: a shard's files, the manifest first. Chunks of at most `chunk` bytes follow."""

    build_key: BuildKey
    stage: StageIndex
    files: tuple[ShardFile, ...]
    chunk: int

    def __post_init__(self) -> None:
        require_hexadecimal("build_key", self.build_key, 64)
        require_whole("stage", self.stage, 0, MAX_STAGES - 1)
        require(isinstance(self.files, tuple), "files must be a tuple")
        require(1 <= len(self.files) <= MAX_OFFERED, f"1 to {MAX_OFFERED} files are offered")
        for file in self.files:
            _require_file(file)
        require(len({file.name for file in self.files}) == len(self.files), "a file is offered twice")
        require_whole("chunk", self.chunk, LEAST_CHUNK, MAX_CHUNK)


@dataclass(frozen=True, slots=True)
class Have:
    """Peer -> coordinator: how many bytes of each offered file are here already."""

    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        require(isinstance(self.offsets, tuple), "offsets must be a tuple")
        require(1 <= len(self.offsets) <= MAX_OFFERED, f"1 to {MAX_OFFERED} offsets are told")
        for offset in self.offsets:
            require_whole("offset", offset, 0, U64)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of an offered file, or bytes that measure a link. They must not change until they are sent."""

    file: int
    offset: int
    payload: bytes | bytearray | memoryview

    def __post_init__(self) -> None:
        require_whole("file", self.file, 0, MAX_OFFERED - 1)
        require_whole("offset", self.offset, 0, U64)
        require(1 <= len(self.payload) <= MAX_CHUNK, f"a chunk has 1 to {MAX_CHUNK} bytes")


@dataclass(frozen=True, slots=True)
class Kept:
    """Peer -> coordinator: everything of that file before `offset` is here."""

    file: int
    offset: int

    def __post_init__(self) -> None:
        require_whole("file", self.file, 0, MAX_OFFERED - 1)
        require_whole("offset", self.offset, 0, U64)


@dataclass(frozen=True, slots=True)
class Stored:
    """Peer -> coordinator: the shard is whole, its hashes are right."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Coordinator -> peer: time one layer of these widths, for one row and for `rows`."""

    hidden: int
    intermediate: int
    rows: int

    def __post_init__(self) -> None:
        require_whole("hidden", self.hidden, 1, MAX_WIDTH)
        require_whole("intermediate", self.intermediate, 1, MAX_WIDTH)
        require_whole("rows", self.rows, 1, MAX_ROWS)
        require(self.values <= MAX_MEASURED_VALUES, "the layer is too large to be measured")

    @property
    def values(self) -> int:
        """Weight values: four square matrices for the attention, three for the feed-forward network."""
        return 4 * self.hidden * self.hidden + 3 * self.hidden * self.intermediate


@dataclass(frozen=True, slots=True)
class Measured:
    """Peer -> coordinator: what it is, and how long the layer took."""

    fleetchat: str
    openvino: str
    device: str
    memory_free: int  # bytes; 0 = the system does not tell
    one_row_us: int
    rows_us: int
    note: str  # what was wrong with the device; empty when nothing was

    def __post_init__(self) -> None:
        for name in ("fleetchat", "openvino", "device"):
            clean_field(self, name, MAX_NAME)
        clean_field(self, "note", MAX_FAULT_TEXT)
        for name in ("memory_free", "one_row_us", "rows_us"):
            require_whole(name, getattr(self, name), 0, U64)


def _require_file(file: object) -> None:
    require(isinstance(file, ShardFile), "a file is a name, a size and a hash")
    assert isinstance(file, ShardFile)
    plain = isinstance(file.name, str) and 0 < len(file.name) <= MAX_FILE_NAME
    good = plain and all(one.isascii() and (one.isalnum() or one in "._-") for one in file.name)
    require(good and not file.name.startswith("."), "the name of a file has letters, digits, dots and dashes")
    require_whole("size", file.size, 1, U64)
    require_hexadecimal("sha256", file.sha256, 64)
