"""Received bytes that are not understood yet."""

from __future__ import annotations

from collections import deque


class ReceiveBuffer:
    """Chunks as they came. Every byte is copied once, into the frame it belongs to."""

    def __init__(self) -> None:
        self._chunks: deque[memoryview] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(memoryview(chunk))
            self._size += len(chunk)

    def clear(self) -> None:
        self._chunks.clear()
        self._size = 0

    def peek(self, count: int) -> bytes:
        """Up to `count` first bytes, left in place."""
        start = b""
        for chunk in self._chunks:
            start += chunk[: count - len(start)]
            if len(start) == count:
                break
        return start

    def take(self, count: int) -> bytes | None:
        """Exactly `count` bytes, or None when they are not all there yet."""
        if self._size < count:
            return None
        if count <= len(self._chunks[0]):
            first = self._chunks[0]
            self._chunks[0] = first[count:]
            self._size -= count
            return bytes(first[:count])
        taken = bytearray(count)
        self.read_into(memoryview(taken))
        return bytes(taken)

    def read_into(self, target: memoryview) -> int:
        """Move as many bytes as there are and fit into `target`; return their number."""
        filled = 0
        while self._chunks and filled < len(target):
            chunk = self._chunks[0]
            count = min(len(chunk), len(target) - filled)  # 0 when `take` used a chunk up
            target[filled : filled + count] = chunk[:count]
            filled += count
            if count == len(chunk):
                self._chunks.popleft()
            else:
                self._chunks[0] = chunk[count:]
        self._size -= filled
        return filled
