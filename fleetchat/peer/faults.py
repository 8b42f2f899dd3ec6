"""What ends a chain on a stage, or keeps it from beginning, and how it travels."""

from __future__ import annotations

from fleetchat.errors import FleetError, PeerLost, PeerRefused, PeerUnreachable, ProtocolError
from fleetchat.wire.frames import Error, FaultCode


class ChainFault(FleetError):
    """`code` is what the coordinator decides by; the text names both sides' values and the remedy."""

    def __init__(self, code: FaultCode, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


def error_frame(error: FleetError) -> Error:
    """A failure of a chain as the coordinator will read it."""
    return Error(_code_of(error), error.message, error.hint or "")


def _code_of(error: FleetError) -> FaultCode:
    match error:
        case ChainFault():
            return error.code
        case PeerRefused():  # another key or version between two stages: a matter of configuration
            return FaultCode.MISMATCH
        case PeerLost() | PeerUnreachable():
            return FaultCode.LINK
        case ProtocolError():
            return FaultCode.PROTOCOL
        case _:
            return FaultCode.INTERNAL
