"""Received bytes that are not understood yet."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.wire.buffer import ReceiveBuffer


def test_take_waits_for_all_bytes() -> None:
    buffer = ReceiveBuffer()
    assert buffer.take(3) is None
    buffer.append(b"ab")
    assert buffer.take(3) is None
    buffer.append(b"cd")
    assert buffer.peek(3) == b"abc"
    assert buffer.take(3) == b"abc"
    assert len(buffer) == 1
    assert buffer.peek(9) == b"d"


@settings(max_examples=100, deadline=None)
@given(chunks=st.lists(st.binary(max_size=9)), sizes=st.lists(st.tuples(st.booleans(), st.integers(1, 12))))
def test_every_byte_comes_out_once_and_in_order(chunks: list[bytes], sizes: list[tuple[bool, int]]) -> None:
    buffer = ReceiveBuffer()
    for chunk in chunks:
        buffer.append(chunk)
    found = b""
    for exactly, size in sizes:
        before = len(buffer)
        if exactly:
            found += buffer.take(size) or b""
        else:
            target = bytearray(size)
            count = buffer.read_into(memoryview(target))
            assert count == min(size, before)
            found += target[:count]
    everything = b"".join(chunks)
    assert found + buffer.peek(len(everything)) == everything
    assert len(buffer) == len(everything) - len(found)


def test_clear_forgets_everything() -> None:
    buffer = ReceiveBuffer()
    buffer.append(b"abc")
    buffer.clear()
    assert (len(buffer), buffer.peek(3), buffer.take(1)) == (0, b"", None)
