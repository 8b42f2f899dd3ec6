"""Errors as one line for a person and a hint (pure)."""

from __future__ import annotations

from fleetchat.errors import FleetchatError


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside an exception group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def is_told(error: Exception) -> bool:
    """Whether the one line says all there is to know: no traceback needs to be kept."""
    return any(isinstance(leaf, FleetchatError) for leaf in leaves(error))


def explained(error: Exception) -> tuple[str, str]:
    """(message, hint) for a person; our own errors before foreign ones."""
    found = leaves(error)
    for leaf in found:
        if isinstance(leaf, FleetchatError):
            return leaf.message, leaf.hint or ""
    foreign = found[0]
    if isinstance(foreign, OSError):
        return f"{foreign.strerror or foreign}: {foreign.filename or 'unknown file'}", ""
    return (
        f"unexpected {type(foreign).__name__}: {foreign}",
        "this is a fault of fleetchat; the log has the details",
    )
