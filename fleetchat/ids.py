"""Names for numbers and kinds that all parts share, so that a stage index is never taken for a session."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, NewType

ChainId = NewType("ChainId", str)  # 32 hex digits, chosen at random by the coordinator
Epoch = NewType("Epoch", int)  # incarnation of a chain, from 1, u32
SessionId = NewType("SessionId", int)  # never reused within an epoch, u32
StageIndex = NewType("StageIndex", int)  # 0 … stages - 1
BatchSequence = NewType("BatchSequence", int)  # running number of a FORWARD in an epoch, u32
BuildKey = NewType("BuildKey", str)  # 64 hex digits


class SessionKey(NamedTuple):
    """What a peer keys a session's state by: two coordinators may use the same numbers."""

    chain: ChainId
    session: SessionId


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Rollback(Enum):
    """How the masked engine takes rows back."""

    MASK = "mask"  # their cells stay, hidden
    TRIM = "trim"  # their cells are cut off: a sliding window would count hidden ones
    RESTART = "restart"  # not at all: a state does not tell its tokens apart, so the session starts anew

    @property
    def can_undo(self) -> bool:
        return self is not Rollback.RESTART
