"""Recipes: TOML files that say where a model comes from and how to cut it.

A recipe is named (shipped in `shards/`, or the user's own in the configuration folder), or given as the
path of a `.toml` file. The user's own come first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat import paths
from fleetchat.cutter.partition import LayerRange
from fleetchat.errors import RecipeError
from fleetchat.spelling import nearest


@dataclass(frozen=True, slots=True)
class PypiSource:
    """A file inside the wheel of a package."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str


@dataclass(frozen=True, slots=True)
class PathSource:
    """A GGUF file or a folder with an exported OpenVINO model, on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class RecipeSampling:
    """What suits the model; None = nothing in particular."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes; 0 = not known. `built` is what a build adds to the store."""

    download: int = 0
    built: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model. `context` None = as the model's own files say."""

    name: str
    title: str
    licence: str
    source: PypiSource | PathSource
    stages: int
    context: int | None
    layers: tuple[LayerRange, ...] | None
    draft: str | None  # a recipe, or the folder of a draft model's IR
    sampling: RecipeSampling
    sizes: Sizes
    system: str | None = None  # the system prompt that suits the model; None = as its chat template says


Check = Callable[[object], Any]


def find_recipe(name: str) -> Recipe:
    """The recipe of that name or file.

    Raises RecipeError: no such recipe (names those there are), or one with a mistake in it.
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        return load(Path(name).expanduser())
    known = known_recipes()
    if name in known:
        return load(known[name])
    raise RecipeError(
        f"there is no recipe {name!r}{nearest(name, known)}",
        hint=f"recipes: {', '.join(sorted(known)) or 'none'}; or the path of a recipe file, ending in .toml",
    )


def known_recipes() -> dict[str, Path]:
    """Name and file of the shipped recipes and of the user's own, which win."""
    folders = (paths.shipped("shards"), paths.config_folder() / "shards")
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.toml"))}


def load(file: Path) -> Recipe:
    """Read one recipe file. Raises RecipeError with file and key."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"there is no recipe file {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{file} cannot be read: {error}") from error
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecipeError(f"{file} is not valid TOML: {error}") from error
    return parse(table, file)


def parse(table: Mapping[str, object], file: Path) -> Recipe:
    """Check a recipe's table; `file` is named in errors and is where relative paths start from."""
    top = _Table(table, file, "", _KEYS)
    name = top.value("name", _text, default=file.stem)
    return Recipe(
        name=name,
        title=top.value("title", _text, default=name),
        licence=top.value("licence", _text, default=""),
        source=_source(top.table("source", required=True), file),
        stages=top.value("stages", _count, default=2),
        context=top.value("context", _count, default=None),
        layers=top.value("layers", _layers, default=None),
        draft=top.value("draft", _text, default=None),
        sampling=_sampling(top.table("sampling"), file),
        sizes=_sizes(top.table("sizes"), file),
        system=top.value("system", _text, default=None),
    )


def parse_layers(text: str) -> tuple[LayerRange, ...]:
    """`0-17,18-29` as ranges. Raises ValueError with the end of a sentence that begins with the name."""
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"must be ranges of layers such as 0-17,18-29, not {text!r}")
        ranges.append((int(first), int(last) if dash else int(first)))
    return tuple(ranges)


_KEYS = {
    *("name", "title", "licence", "stages", "context", "layers", "draft", "system"),
    *("source", "sampling", "sizes"),
}


class _Table:
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
        table: Mapping[str, object] = self.value(key, _mapping, default={}, required=required)
        return table

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _source(table: Mapping[str, object], file: Path) -> PypiSource | PathSource:
    kind = _Table({"kind": table.get("kind", "")}, file, "source", {"kind"}).value("kind", _kind)
    if kind == "path":
        own = _Table(table, file, "source", {"kind", "path"})
        return PathSource(file.parent / Path(own.value("path", _text, required=True)).expanduser())
    keys = ("package", "version", "wheel_sha256", "member", "member_sha256")
    own = _Table(table, file, "source", {"kind", *keys})
    return PypiSource(**{key: own.value(key, _CHECKS.get(key, _text), required=True) for key in keys})


def _sampling(table: Mapping[str, object], file: Path) -> RecipeSampling:
    checks: dict[str, Check] = {
        "temperature": lambda value: _number(value, 0, 100),
        "top_p": lambda value: _number(value, 0, 1, above=True),
        "top_k": lambda value: _whole(value, 0),
        "repetition_penalty": lambda value: _number(value, 0, 100, above=True),
    }
    own = _Table(table, file, "sampling", set(checks))
    return RecipeSampling(**{key: own.value(key, check, default=None) for key, check in checks.items()})


def _sizes(table: Mapping[str, object], file: Path) -> Sizes:
    own = _Table(table, file, "sizes", {"download", "built"})
    return Sizes(
        own.value("download", lambda value: _whole(value, 0), default=0),
        own.value("built", lambda value: _whole(value, 0), default=0),
    )


def _kind(value: object) -> str:
    if value not in ("pypi", "path"):
        raise ValueError(f'must be "pypi" or "path", not {value!r}')
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a text in quotes, not {value!r}")
    return value


def _sha256(value: object) -> str:
    text = _text(value).lower()
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"must be a SHA-256 of 64 hexadecimal digits, not {value!r}")
    return text


def _plain_word(value: object) -> str:
    """A package or version: it becomes part of a command line."""
    text = _text(value)
    if text.startswith("-") or not all(letter.isalnum() or letter in "._-+!" for letter in text):
        raise ValueError(f"must be a package or version as the index spells it, not {value!r}")
    return text


def _count(value: object) -> int:
    return _whole(value, 1)


def _whole(value: object, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"must be a whole number of at least {low}, not {value!r}")
    return value


def _number(value: object, low: float, high: float, *, above: bool = False) -> float:
    """A number from `low` to `high`; `above` leaves `low` itself out."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        span = f"above {low} and at most {high}" if above else f"from {low} to {high}"
        raise ValueError(f"must be a number {span}, not {value!r}")
    return float(value)  # type: ignore[arg-type]


def _layers(value: object) -> tuple[LayerRange, ...]:
    return parse_layers(_text(value))


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, not {value!r}")
    return value


_CHECKS: dict[str, Check] = {
    "package": _plain_word,
    "version": _plain_word,
    "wheel_sha256": _sha256,
    "member_sha256": _sha256,
}
