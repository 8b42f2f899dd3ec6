"""A recipe for a model that was named on the command line: a repository of the hub, a folder, a file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import tomli_w

from fleetchat import paths
from fleetchat.cutter.files import replace, write_text
from fleetchat.cutter.recipe import HubSource, PathSource, Recipe, known_recipes, load, parse
from fleetchat.cutter.recipe_table import REPOSITORY
from fleetchat.errors import RecipeError


def recipe_for(named: str, weights: str, name: str | None) -> tuple[Recipe, dict[str, Any] | None] | None:
    """The recipe of `OWNER/NAME`, `OWNER/NAME:FILE`, a folder or a file, and its table; None for other words.

    No table for a model that has a recipe of that name already: it stays as it is, with its revision.

    Raises RecipeError when another model has its name already.
    """
    path = Path(named).expanduser()
    repository, _, file = named.partition(":")
    source: dict[str, str]
    if path.is_dir() or (path.is_file() and path.suffix != ".toml"):
        path = path.absolute()
        if path.name == "openvino_model.xml":
            path = path.parent
        source = {"kind": "path", "path": str(path), "weights": weights}
        title = path.stem if path.is_file() else path.name
    elif REPOSITORY.fullmatch(repository) and not named.endswith(".toml"):
        source = {"kind": "hub", "repository": repository, "weights": weights}
        if file:
            source["file"] = file
        title = repository.split("/")[1]
    else:
        return None
    chosen = name or slug(title)
    table: dict[str, Any] = {"name": chosen, "title": title, "stages": 2, "source": source}
    recipe = parse(table, file_of(chosen))
    known = _known(recipe)
    return (recipe, table) if known is None else (known, None)


def slug(title: str) -> str:
    """A name that can be typed: small letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.") or "model"


def file_of(name: str) -> Path:
    """Where the user's recipe of that name is."""
    return paths.config_folder() / "shards" / f"{name}.toml"


def write_recipe(table: dict[str, Any]) -> Path:
    """Write it whole or not at all; returns where."""
    path = file_of(str(table["name"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    write_text(fresh, "# Written by `fleetchat shards build`; yours to change.\n\n" + tomli_w.dumps(table))
    replace(fresh, path)
    return path


def _known(recipe: Recipe) -> Recipe | None:
    """The recipe that the same model has under that name. Raises RecipeError when another model has it."""
    if slug(recipe.name) != recipe.name:
        raise RecipeError(
            f"--name {recipe.name!r} is no name of a recipe", hint="small letters, digits, dots and dashes"
        )
    file = known_recipes().get(recipe.name)
    if file is None:
        return None
    other = load(file)
    if _model(other) != _model(recipe):
        raise RecipeError(
            f"another model has the recipe {recipe.name} already ({file})",
            hint="choose another name: --name NAME",
        )
    return other


def _model(recipe: Recipe) -> object:
    """What two recipes of the same model have in common, in whatever revision."""
    if isinstance(recipe.source, HubSource):
        return dataclasses.replace(recipe.source, revision="")
    return recipe.source if isinstance(recipe.source, PathSource) else None
