"""numpy arrays <-> bytes, without a copy where there can be none.

A view is made only after the number of bytes was compared with what its shape needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.wire.kinds import WireDtype

ALIGNMENT = 16  # of arrays within a body: vector loads, and what malloc gives the body itself
_INT32 = np.dtype("<i4")


def padding(offset: int) -> int:
    """Zero bytes from `offset` to the next aligned one."""
    return -offset % ALIGNMENT


def hidden_buffer(hidden: NDArray[np.floating], width: int, dtype: WireDtype) -> memoryview:
    """The bytes of hidden rows, without a copy. Raises LocalProtocolError on a wrong width or dtype."""
    if hidden.dtype != dtype.numpy:
        raise LocalProtocolError(f"hidden rows are {hidden.dtype}, this link carries {dtype.value}")
    if hidden.shape[1] != width:
        raise LocalProtocolError(f"hidden rows are {hidden.shape[1]} wide, this link carries {width}")
    if not hidden.flags.c_contiguous:
        raise LocalProtocolError("hidden rows must be contiguous")
    return hidden.data.cast("B")


def hidden_view(
    body: bytearray, offset: int, rows: int, width: int, dtype: WireDtype
) -> NDArray[np.floating]:
    """Hidden rows [rows, width] that fill `body` from `offset` to its end exactly."""
    expected, there = rows * width * dtype.numpy.itemsize, len(body) - offset
    if there != expected:
        raise RemoteProtocolError(
            f"{rows} hidden rows of {width} {dtype.value} need {expected} bytes, the frame has {there}"
        )
    flat = np.frombuffer(body, dtype.numpy, count=rows * width, offset=offset)
    return flat.reshape(rows, width)


def token_view(body: bytearray, offset: int, count: int, vocabulary: int) -> NDArray[np.int32]:
    """`count` token ids at `offset`; all of them from 0 to `vocabulary` - 1 (0 = vocabulary unknown)."""
    if not count or offset + count * _INT32.itemsize > len(body):
        raise RemoteProtocolError("the frame has no token ids, or ends inside them")
    ids = np.frombuffer(body, _INT32, count=count, offset=offset)
    limit = vocabulary or 2**31
    # numpy's reduction costs ten times the rest for the few rows of a decode step
    few = ids.tolist() if count <= 32 else [int(ids.min()), int(ids.max())]
    if min(few) < 0 or max(few) >= limit:
        raise RemoteProtocolError(f"a token id is not from 0 to {limit - 1}")
    return ids
