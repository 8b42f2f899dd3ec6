"""Checks that frame constructors share: they raise LocalProtocolError, which the decoder turns round.

Texts for people (faults, reasons, progress) are cleaned instead of refused, so that reporting an error never
fails; what comes from the network must already be clean.
"""

from __future__ import annotations

import math

from fleetchat.errors import LocalProtocolError

U16 = 2**16 - 1
U32 = 2**32 - 1
U64 = 2**64 - 1

CONTROL_BODY = 64 * 1024  # JSON bodies of control frames: far above what any of them needs
MAX_BODY = 256 * 1024 * 1024  # no link ever agrees to more: 65,536 rows of 1,024 in f32
MAX_ROWS = 65_536
MAX_SLICES = 1_024
MAX_HIDDEN = 65_536
MAX_STAGES = 256  # also the most timings in a batch
MAX_SESSIONS_IN_STATS = 1_024  # x 45 bytes of JSON stays below CONTROL_BODY
MAX_NAME = 128  # UTF-8 bytes of a version or a device name
MAX_FAULT_TEXT = 512  # of a slice's fault; every slice of a batch may carry one
MAX_TEXT = 2_048  # of a reason, an error or a hint

_HEXADECIMAL = frozenset("0123456789abcdef")
_CONTROL = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_CONTROL_TO_SPACE = dict.fromkeys(_CONTROL, " ")


def require(condition: bool, message: str) -> None:
    """Raise LocalProtocolError(message) unless `condition`."""
    if not condition:
        raise LocalProtocolError(message)


def require_whole(name: str, value: object, minimum: int = 0, maximum: int = U32) -> None:
    """`value` is an int (no bool) from `minimum` to `maximum`."""
    if type(value) is not int:
        raise LocalProtocolError(f"{name} must be a whole number, not {type(value).__name__}")
    if not minimum <= value <= maximum:
        raise LocalProtocolError(f"{name} must be from {minimum} to {maximum}")


def require_number(name: str, value: object, minimum: float, maximum: float) -> None:
    """`value` is a finite float or int from `minimum` to `maximum`."""
    if type(value) not in (int, float):
        raise LocalProtocolError(f"{name} must be a number, not {type(value).__name__}")
    assert isinstance(value, (int, float))
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise LocalProtocolError(f"{name} must be from {minimum:g} to {maximum:g}")


def require_hexadecimal(name: str, value: object, digits: int) -> None:
    """`value` has exactly `digits` lower-case hexadecimal digits."""
    if not (isinstance(value, str) and len(value) == digits and _HEXADECIMAL.issuperset(value)):
        raise LocalProtocolError(f"{name} must have {digits} hexadecimal digits")


def require_host(value: object) -> None:
    """`value` may be a host name or a numeric address: 1 to 253 visible characters."""
    good = isinstance(value, str) and 0 < len(value) <= 253 and value.isprintable() and " " not in value
    require(good, "the host of an address must have 1 to 253 visible characters")


def clean_text(name: str, text: object, maximum_bytes: int) -> str:
    """One line of at most `maximum_bytes` UTF-8 bytes: control characters become spaces, the rest is cut."""
    if not isinstance(text, str):
        raise LocalProtocolError(f"{name} must be text, not {type(text).__name__}")
    encoded = text.translate(_CONTROL_TO_SPACE).encode("utf-8", "replace")
    return encoded[:maximum_bytes].decode("utf-8", "ignore")


def clean_field(frame: object, name: str, maximum_bytes: int) -> None:
    """Clean a text field of a frozen frame in its constructor."""
    object.__setattr__(frame, name, clean_text(name, getattr(frame, name), maximum_bytes))
