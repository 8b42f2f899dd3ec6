"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetchat.errors import FleetchatError


class Status(StrEnum):
    """How a check ended. A warning leaves everything usable, a failure does not."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` says what is, `remedy` what to do about it (empty where nothing is to be done).

    `details` are further lines for the reader. The examination fills in `milliseconds`.
    """

    name: str
    status: Status
    text: str
    remedy: str = ""
    details: tuple[str, ...] = ()
    milliseconds: float = 0.0


def ok(name: str, text: str, *details: str) -> Finding:
    return Finding(name, Status.OK, text, details=details)


def warn(name: str, text: str, remedy: str, *details: str) -> Finding:
    return Finding(name, Status.WARN, text, remedy, details)


def fail(name: str, text: str, remedy: str, *details: str) -> Finding:
    return Finding(name, Status.FAIL, text, remedy, details)


def skipped(name: str, text: str) -> Finding:
    return Finding(name, Status.SKIPPED, text)


def failure_of(name: str, error: FleetchatError, remedy: str = "") -> Finding:
    """An error that the program explains anyway; `remedy` where it has no hint of its own."""
    return fail(name, error.message, error.hint or remedy)
