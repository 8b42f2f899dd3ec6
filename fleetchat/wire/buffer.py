"""Received bytes that are not understood yet."""

from __future__ import annotations

from collections import deque


class ReceiveBuffer:
    """Chunks as they came. Every byte is copied once, into the frame it belongs to."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._used = 0  # bytes of the first chunk, always fewer than it has
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._size += len(chunk)

    @property
    def sole_chunk(self) -> bytes | None:
        """All that is here, when it came in one piece."""
        return self._chunks[0] if len(self._chunks) == 1 and not self._used else None

    def clear(self) -> None:
        self._chunks.clear()
        self._used = self._size = 0

    def peek(self, count: int) -> bytes:
        """Up to `count` first bytes, left in place."""
        start = b""
        skipped = self._used
        for chunk in self._chunks:
            start += chunk[skipped : skipped + count - len(start)]
            skipped = 0
            if len(start) == count:
                break
        return start

    def take(self, count: int) -> bytes | None:
        """Exactly `count` bytes, or None when they are not all there yet."""
        if self._size < count:
            return None
        first, start = self._chunks[0], self._used
        if start + count < len(first):
            self._used = start + count
            self._size -= count
            return first[start : start + count]
        taken = bytearray(count)
        self.read_into(memoryview(taken))
        return bytes(taken)

    def read_into(self, target: memoryview) -> int:
        """Move as many bytes as there are and fit into `target`; return their number."""
        filled = 0
        while self._chunks and filled < len(target):
            chunk, start = self._chunks[0], self._used
            count = min(len(chunk) - start, len(target) - filled)
            target[filled : filled + count] = memoryview(chunk)[start : start + count]
            filled += count
            self._used += count
            if self._used == len(chunk):
                self._chunks.popleft()
                self._used = 0
        self._size -= filled
        return filled
