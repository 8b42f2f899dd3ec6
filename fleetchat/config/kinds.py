"""What a setting may be: one class a kind, with the check and the reading of an environment variable.

A check returns the value to use and raises ValueError with the end of a sentence that begins with
the key's name.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Kind(Protocol):
    """`base` is the folder that relative paths start from."""

    def check(self, value: object, base: Path) -> object: ...

    def from_text(self, text: str) -> object: ...


class _TomlText:
    """Read from an environment variable as TOML would read it."""

    def from_text(self, text: str) -> object:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            return text


class _PlainText:
    """Taken from an environment variable as it stands."""

    def from_text(self, text: str) -> object:
        return text


@dataclass(frozen=True)
class Text(_PlainText):
    def check(self, value: object, base: Path) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be a text in quotes, not {_shown(value)}")
        return value


@dataclass(frozen=True)
class FilePath(_PlainText):
    """A path; `~` is the user's folder."""

    def check(self, value: object, base: Path) -> Path:
        if isinstance(value, Path):
            return base / value
        if not isinstance(value, str) or not value:
            raise ValueError(f"must be a path in quotes, not {_shown(value)}")
        return base / Path(value).expanduser()


@dataclass(frozen=True)
class Choice(_PlainText):
    """One of some words. `later` explains words that do not work yet."""

    words: tuple[str, ...]
    later: str = ""

    def check(self, value: object, base: Path) -> str:
        if not isinstance(value, str) or value not in self.words:
            words = " or ".join(f'"{word}"' for word in self.words)
            raise ValueError(f"must be {words}, not {_shown(value)}{self.later}")
        return value


DEVICE = re.compile(r"(CPU|GPU|NPU)(\.[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True)
class Device(_PlainText):
    """A device of OpenVINO."""

    def check(self, value: object, base: Path) -> str:
        if not isinstance(value, str) or DEVICE.fullmatch(value) is None:
            raise ValueError(f'must be "CPU", "GPU" or "NPU", with several also "GPU.1", not {_shown(value)}')
        return value


@dataclass(frozen=True)
class Integer(_TomlText):
    low: int
    high: int | None = None

    def check(self, value: object, base: Path) -> int:
        known = isinstance(value, int) and not isinstance(value, bool)
        if not known or not _within(value, self.low, self.high):
            raise ValueError(f"must be a whole number {_range(self.low, self.high)}, not {_shown(value)}")
        assert isinstance(value, int)
        return value


@dataclass(frozen=True)
class Number(_TomlText):
    low: float
    high: float | None = None
    above: bool = False  # `low` itself is excluded

    def check(self, value: object, base: Path) -> float:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not _within(number, self.low, self.high) or (self.above and number == self.low):
            span = _range(self.low, self.high, above=self.above)
            raise ValueError(f"must be a number {span}, not {_shown(value)}")
        return number


@dataclass(frozen=True)
class Flag(_TomlText):
    """true or false. With `only_false` true is refused, for that reason."""

    only_false: str = ""

    def check(self, value: object, base: Path) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {_shown(value)}")
        if value and self.only_false:
            raise ValueError(f"must be false: {self.only_false}")
        return value


@dataclass(frozen=True)
class Texts(_TomlText):
    """A list of texts, none of them empty; a single text is a list of one."""

    def check(self, value: object, base: Path) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
            raise ValueError(f"must be a list of texts that are not empty, not {_shown(value)}")
        return tuple(items)


@dataclass(frozen=True)
class TextTable:
    """A table of texts."""

    def check(self, value: object, base: Path) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise ValueError(f"must be a table of texts in quotes, not {_shown(value)}")
        return {str(name): text for name, text in value.items()}

    def from_text(self, text: str) -> object:
        raise ValueError("can only be set in a file")


@dataclass(frozen=True)
class Depth(_TomlText):
    """Drafts a round: "adaptive", or a number."""

    def check(self, value: object, base: Path) -> int | str:
        if value == "adaptive":
            return "adaptive"
        if isinstance(value, bool) or not isinstance(value, int) or not _within(value, 1, 64):
            raise ValueError(f'must be "adaptive" or a whole number from 1 to 64, not {_shown(value)}')
        return value


def _within(number: object, low: float, high: float | None) -> bool:
    assert isinstance(number, int | float)
    return low <= number <= (math.inf if high is None else high) and number != math.inf


def _range(low: float, high: float | None, *, above: bool = False) -> str:
    if high is None:
        return f"above {low}" if above else f"from {low} upwards"
    return f"above {low} and at most {high}" if above else f"from {low} to {high}"


def _shown(value: object) -> str:
    """A value in a message, shortened. TOML's own spelling of the words true and false."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
