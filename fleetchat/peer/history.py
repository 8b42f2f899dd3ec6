"""The token ids of each session, kept by the last stage for the repetition penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetchat.ids import SessionId

_FIRST_CAPACITY = 256


class TokenHistory:
    """Ids at absolute positions. As long as the longest slice that the engine took, so bounded by cells."""

    def __init__(self) -> None:
        self._ids: dict[SessionId, NDArray[np.int32]] = {}

    def write(self, session: SessionId, first: int, token_ids: NDArray[np.int32]) -> None:
        """What the engine holds from position `first` on; later positions are void."""
        end = first + len(token_ids)
        ids = self._ids.get(session)
        if ids is None or len(ids) < end:
            grown = np.zeros(max(_FIRST_CAPACITY, 2 * end), dtype=np.int32)
            if ids is not None:
                grown[: len(ids)] = ids
            ids = self._ids[session] = grown
        ids[first:end] = token_ids

    def read(self, session: SessionId, start: int, stop: int) -> NDArray[np.int32]:
        """Ids at positions start … stop - 1 (a view); empty when start >= stop."""
        ids = self._ids.get(session)
        return np.zeros(0, dtype=np.int32) if ids is None or start >= stop else ids[start:stop]

    def copy(self, new: SessionId, source: SessionId, length: int) -> None:
        """Give `new` the first `length` ids of `source`."""
        self.write(new, 0, self.read(source, 0, length))

    def forget(self, session: SessionId) -> None:
        self._ids.pop(session, None)
