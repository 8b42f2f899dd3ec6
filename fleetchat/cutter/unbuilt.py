"""Recipes, shipped or the user's own, of which the store has no build, and what a build would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.cutter.checkpoint import is_checkpoint, weight_bytes
from fleetchat.cutter.estimate import needs
from fleetchat.cutter.manifest import CUTTER_FORMAT, Manifest
from fleetchat.cutter.recipe import PathSource, Recipe, known_recipes, load
from fleetchat.errors import FleetchatError


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """`download` and `built` in bytes, None where nobody knows; `fault` is what is wrong with the recipe."""

    name: str
    download: int | None
    built: int | None
    fault: str | None = None


def unbuilt_recipes(builds: Sequence[Manifest]) -> list[Unbuilt]:
    """By name. A build of another cutter format is none: it would be built again."""
    built = {name for one in builds if one.format == CUTTER_FORMAT for name in one.recipes}
    found = []
    for name, file in sorted(known_recipes().items()):
        if name in built:
            continue
        try:
            found.append(_sized(name, load(file)))
        except FleetchatError as error:
            found.append(Unbuilt(name, None, None, error.message))
    return found


def _sized(name: str, recipe: Recipe) -> Unbuilt:
    source, sizes = recipe.source, recipe.sizes
    if not isinstance(source, PathSource):
        return Unbuilt(name, sizes.download or None, sizes.built or None)
    path = source.path
    if not path.exists():
        return Unbuilt(name, None, None, f"{path} is not there")
    if not path.is_dir():
        kind, size = "gguf", path.stat().st_size
    elif is_checkpoint(path):
        kind, size = "checkpoint", weight_bytes(path)
    else:
        kind, size = "ir", sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return Unbuilt(name, 0, needs(kind, size, source.weights, fetched=0).disk)
