"""One table of a recipe file, and the checks of its values: mistakes are named with file and key. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetchat.errors import RecipeError
from fleetchat.spelling import nearest

Check = Callable[[object], Any]
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class Table:
    """One table of the file: unknown keys are refused at once, values are checked when asked for."""

    def __init__(self, table: Mapping[str, object], file: Path, name: str, known: set[str]) -> None:
        self._table, self._file, self._name = table, file, name
        for key in table:
            if key not in known:
                raise RecipeError(f"{file}: unknown key {self._full(key)}{nearest(key, known)}")

    def value(self, key: str, check: Check, *, default: Any = ..., required: bool = False) -> Any:
        if key not in self._table:
            if required:
                raise RecipeError(f"{self._file}: {self._full(key)} is missing")
            return default
        try:
            return check(self._table[key])
        except ValueError as error:
            raise RecipeError(f"{self._file}: {self._full(key)} {error}") from None

    def table(self, key: str, *, required: bool = False) -> Mapping[str, object]:
        table: Mapping[str, object] = self.value(key, mapping, default={}, required=required)
        return table

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def text(value: object) -> str:
    """Some text."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a text in quotes, not {value!r}")
    return value


def sha256(value: object) -> str:
    """A SHA-256 in hexadecimal, in small letters."""
    digits = text(value).lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise ValueError(f"must be a SHA-256 of 64 hexadecimal digits, not {value!r}")
    return digits


def plain_word(value: object) -> str:
    """A package or version: it becomes part of a command line."""
    word = text(value)
    if word.startswith("-") or not all(letter.isalnum() or letter in "._-+!" for letter in word):
        raise ValueError(f"must be a package or version as the index spells it, not {value!r}")
    return word


def repository(value: object) -> str:
    """`owner/name` of a model on the Hugging Face hub."""
    name = text(value)
    if not REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise ValueError(f"must be a repository of the hub as OWNER/NAME, not {value!r}")
    return name


def revision(value: object) -> str:
    """A branch, a tag or a commit: it becomes part of an address."""
    name = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,199}", name, re.ASCII):
        raise ValueError(f"must be a branch, tag or commit of the repository, not {value!r}")
    return name


def member(value: object) -> str:
    """A file in a repository, with `/` between folders."""
    name = text(value)
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise ValueError(f"must be a file of the repository, not {value!r}")
    return name


def one_of(*known: str) -> Check:
    """One of a few words."""

    def check(value: object) -> str:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}, not {value!r}")
        return str(value)

    return check


def count(value: object) -> int:
    """A whole number from 1 on."""
    return whole(value, 1)


def whole(value: object, low: int) -> int:
    """A whole number from `low` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"must be a whole number of at least {low}, not {value!r}")
    return value


def number(value: object, low: float, high: float, *, above: bool = False) -> float:
    """A number from `low` to `high`; `above` leaves `low` itself out."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        span = f"above {low} and at most {high}" if above else f"from {low} to {high}"
        raise ValueError(f"must be a number {span}, not {value!r}")
    return float(value)  # type: ignore[arg-type]


def mapping(value: object) -> Mapping[str, object]:
    """A table."""
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, not {value!r}")
    return value
