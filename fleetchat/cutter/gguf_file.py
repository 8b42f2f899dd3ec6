"""Reading a GGUF file: fields, tensors, and whether the file is whole.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little endian, versions 2 and 3).
The reader of the `gguf` package takes two seconds for a vocabulary of 49,152 tokens and does not say
how large a truncated file should be; this one takes a tenth of that. Dequantising stays with `gguf`.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from fleetchat.errors import SourceError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # bytes, where the file has no general.alignment
MAX_DIMENSIONS = 4

FieldValue = bool | int | float | str | list["FieldValue"]

FloatArray = npt.NDArray[np.float32]

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING = 8
_ARRAY = 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor. `shape` is [rows, columns] as numpy counts, `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    size: int  # bytes


def _dequantised(raw: bytes, kind: GGMLQuantizationType) -> FloatArray:
    values = dequantize(np.frombuffer(raw, dtype=np.uint8), kind)
    return np.ascontiguousarray(values, dtype=np.float32)


class GgufFile:
    """A GGUF that was checked to be whole.

    Raises SourceError when the file is not a GGUF, of an unknown version, damaged or cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        if self.size < 24:
            raise SourceError(f"{path} is not a GGUF file: it has only {self.size} bytes")
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.fields: dict[str, FieldValue] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the file; arrays from `dequantised` stay valid."""
        self._bytes.close()

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dequantised(self, name: str) -> FloatArray:
        """The tensor's values as f32, in `shape`."""
        tensor = self.tensors[name]
        raw = self._bytes[tensor.offset : tensor.offset + tensor.size]
        return _dequantised(raw, tensor.kind).reshape(tensor.shape)

    def dequantised_row(self, name: str, row: int) -> FloatArray:
        """One row (from 0) of a tensor with two dimensions, as f32."""
        tensor = self.tensors[name]
        row_size = tensor.size // tensor.shape[0]
        begin = tensor.offset + row * row_size
        return _dequantised(self._bytes[begin : begin + row_size], tensor.kind)

    def integer(self, key: str, default: int | None = None) -> int | None:
        """A field that must be a whole number where it is present."""
        value = self.fields.get(key, default)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise SourceError(f"{self.path}: field {key} is {value!r}, expected a whole number")

    def text(self, key: str) -> str | None:
        """A field that must be text where it is present."""
        value = self.fields.get(key)
        if value is None or isinstance(value, str):
            return value
        raise SourceError(f"{self.path}: field {key} is not text")

    @property
    def architecture(self) -> str:
        """`general.architecture`, the prefix of the model's own fields."""
        return self.text("general.architecture") or ""

    def _read_header(self) -> None:
        if self._bytes[:4] != MAGIC:
            raise SourceError(f"{self.path} is not a GGUF file: it does not begin with {MAGIC.decode()}")
        (version,) = struct.unpack_from("<I", self._bytes, 4)
        if version not in VERSIONS:
            raise SourceError(f"{self.path}: GGUF version {version} is not supported (known: 2, 3)")
        tensor_count, field_count = struct.unpack_from("<QQ", self._bytes, 8)
        try:
            position = self._read_fields(24, field_count)
            infos, position = self._read_tensor_infos(position, tensor_count)
        except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise SourceError(
                f"{self.path}: the GGUF header is damaged or cut off (file of {self.size} bytes): {error}",
                hint="fetch or copy the file again",
            ) from error
        self._place_tensors(infos, position)

    def _read_fields(self, position: int, count: int) -> int:
        for _ in range(count):
            key, position = self._string(position)
            (kind,) = struct.unpack_from("<I", self._bytes, position)
            self.fields[key], position = self._value(position + 4, kind)
        return position

    def _read_tensor_infos(
        self, position: int, count: int
    ) -> tuple[list[tuple[str, tuple[int, ...], int, int]], int]:
        infos = []
        for _ in range(count):
            name, position = self._string(position)
            (dimensions,) = struct.unpack_from("<I", self._bytes, position)
            if dimensions > MAX_DIMENSIONS:
                raise ValueError(f"tensor {name} has {dimensions} dimensions")
            shape = struct.unpack_from(f"<{dimensions}Q", self._bytes, position + 4)
            position += 4 + 8 * dimensions
            kind, offset = struct.unpack_from("<IQ", self._bytes, position)
            position += 12
            infos.append((name, shape[::-1], kind, offset))
        return infos, position

    def _place_tensors(self, infos: list[tuple[str, tuple[int, ...], int, int]], position: int) -> None:
        alignment = self.integer("general.alignment", DEFAULT_ALIGNMENT) or DEFAULT_ALIGNMENT
        start = (position + alignment - 1) // alignment * alignment
        expected = start
        for name, shape, kind, offset in infos:
            try:
                quantisation = GGMLQuantizationType(kind)
            except ValueError:
                raise SourceError(f"{self.path}: tensor {name} has the unknown type {kind}") from None
            block, block_bytes = GGML_QUANT_SIZES[quantisation]
            size = math.prod(shape) // block * block_bytes
            self.tensors[name] = GgufTensor(name, shape, quantisation, start + offset, size)
            expected = max(expected, start + offset + size)
        if expected > self.size:
            raise SourceError(
                f"{self.path} is cut off: its tensors need {expected} bytes, the file has {self.size}",
                hint="fetch or copy the file again",
            )

    def _string(self, position: int) -> tuple[str, int]:
        (length,) = struct.unpack_from("<Q", self._bytes, position)
        begin, end = position + 8, position + 8 + length
        if end > self.size:
            raise ValueError(f"a string of {length} bytes reaches past the end")
        return self._bytes[begin:end].decode("utf-8"), end

    def _value(self, position: int, kind: int) -> tuple[FieldValue, int]:
        if kind == _STRING:
            return self._string(position)
        if kind == _ARRAY:
            return self._array(position)
        if kind not in _SCALARS:
            raise ValueError(f"unknown field type {kind}")
        layout = _SCALARS[kind]
        (value,) = struct.unpack_from(layout, self._bytes, position)
        return value, position + struct.calcsize(layout)

    def _array(self, position: int) -> tuple[list[FieldValue], int]:
        kind, count = struct.unpack_from("<IQ", self._bytes, position)
        position += 12
        if count > self.size:
            raise ValueError(f"an array of {count} entries reaches past the end")
        if kind in _SCALARS:
            layout = f"<{count}{_SCALARS[kind][1]}"
            values = list(struct.unpack_from(layout, self._bytes, position))
            return values, position + struct.calcsize(layout)
        values = []
        for _ in range(count):
            value, position = self._value(position, kind)
            values.append(value)
        return values, position
