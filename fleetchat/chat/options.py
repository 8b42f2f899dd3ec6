"""What one chat sets for itself; None = as configured (pure)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

OVERFLOWS = ("refuse", "drop-oldest")


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """`system` "" means no system prompt at all."""

    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    overflow: str | None = None

    def stored(self) -> dict[str, Any]:
        """What is set, as JSON has it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> ChatOptions:
        """From `stored`; what this version does not know or accept is left out."""
        values: dict[str, Any] = {}
        for name, check in CHECKS.items():
            if name in stored and stored[name] is not None:
                try:
                    values[name] = check(stored[name])
                except (ValueError, TypeError):
                    continue
        return cls(**values)

    def changed(self, name: str, text: str) -> ChatOptions:
        """One option set to what somebody typed; `default` or nothing unsets it.

        Raises ValueError with a sentence.
        """
        if name not in CHECKS:
            raise ValueError(f"there is no option {name!r}; there are {', '.join(CHECKS)}")
        if text.strip() in ("", "default"):
            return dataclasses.replace(self, **{name: None})
        try:
            value = CHECKS[name](text)
        except ValueError as error:
            raise ValueError(f"{name} must be {error}, not {text.strip()!r}") from error
        return dataclasses.replace(self, **{name: value})


def _number(words: str, low: float, high: float, *, above: bool = False) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        try:
            number = float(value)
        except (ValueError, TypeError):
            number = math.nan
        if not low <= number <= high or (above and number == low):
            raise ValueError(words)
        return number

    return check


def _whole(words: str, low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        try:
            number = int(str(value).strip().replace(",", ""))
        except ValueError:
            raise ValueError(words) from None
        if not low <= number <= high:
            raise ValueError(words)
        return number

    return check


def _overflow(value: Any) -> str:
    word = str(value).strip()
    if word not in OVERFLOWS:
        raise ValueError(" or ".join(OVERFLOWS))
    return word


CHECKS: dict[str, Callable[[Any], Any]] = {
    "system": str,
    "temperature": _number("a number from 0 to 100", 0, 100),
    "top_p": _number("a number above 0 and at most 1", 0, 1, above=True),
    "top_k": _whole("a whole number from 0", 0, 2**31 - 1),
    "repetition_penalty": _number("a number above 0 and at most 100", 0, 100, above=True),
    "max_tokens": _whole("a whole number from 1", 1, 2**31 - 1),
    "seed": _whole("a whole number from 0", 0, 2**63 - 1),
    "overflow": _overflow,
}
