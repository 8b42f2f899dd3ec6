"""`fleetchat shards build`: from a recipe, a repository of the hub, a folder or a file."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetchat.cli.output import print_diagnostic
from fleetchat.errors import InputError, RecipeError

if TYPE_CHECKING:
    from fleetchat.cutter.estimate import Needs
    from fleetchat.cutter.recipe import Recipe
    from fleetchat.cutter.store import Store


def register_options(parser: argparse.ArgumentParser) -> None:
    """What a new model needs besides its name."""
    parser.add_argument(
        "--weights",
        choices=("int4", "int8", "fp16"),
        help="of a new model, as what a checkpoint is exported (default: int4)",
    )
    parser.add_argument("--name", metavar="NAME", help="of the recipe that is written for a new model")
    parser.add_argument("--yes", action="store_true", help="do not ask whether to build")


def chosen_recipe(options: argparse.Namespace) -> tuple[Recipe, dict[str, Any] | None]:
    """The recipe, and its table when it is new and to be written. Raises RecipeError."""
    from fleetchat.cutter.new_recipe import recipe_for
    from fleetchat.cutter.recipe import find_recipe, known_recipes

    new = None
    if options.recipe not in known_recipes():
        new = recipe_for(options.recipe, options.weights or "int4", options.name)
    if new is not None:
        return new
    if options.weights or options.name:
        raise InputError(
            "--weights and --name are for a new model",
            hint="a recipe says itself what it is: change its file, or name the model's repository or folder",
        )
    try:
        return find_recipe(options.recipe), None
    except RecipeError as error:
        hint = (
            f"{error.hint}; or a model: OWNER/NAME on the hub, a folder or a .gguf file"
            if error.hint
            else None
        )
        raise RecipeError(error.message, hint=hint) from error


def pinned(recipe: Recipe, new: dict[str, Any] | None) -> tuple[Recipe, dict[str, Any] | None]:
    """A new recipe with the commit that the hub has now: what is built later is the same model."""
    from fleetchat.cutter.hub import list_repository
    from fleetchat.cutter.recipe import HubSource

    if new is None or not isinstance(recipe.source, HubSource):
        return recipe, new
    commit = list_repository(recipe.source).commit
    source = replace(recipe.source, revision=commit)
    return replace(recipe, source=source), {**new, "source": {**new["source"], "revision": commit}}


def announce(recipe: Recipe, store: Store, options: argparse.Namespace) -> None:
    """Say what a build of a large or new model takes, refuse what does not fit, and ask.

    Raises SourceError in numbers, InputError when nobody can be asked or the answer is no.
    """
    from fleetchat.cutter.recipe import PypiSource
    from fleetchat.cutter.source import known_source

    if options.source is not None or isinstance(recipe.source, PypiSource):
        return
    if known_source(recipe, None, store) is not None:
        return
    needed = _needs(recipe)
    if needed is None:
        return
    _check(needed, store)
    if options.progress == "json":
        return
    origin = getattr(recipe.source, "repository", None) or getattr(recipe.source, "path", "")
    print_diagnostic(f"{recipe.title}, from {origin}: {needed.line}")
    if recipe.licence:
        print_diagnostic(f"licence: {recipe.licence}")
    if options.yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("nobody can be asked whether to build this", hint="add --yes")
    print("Build it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InputError("nothing was built")


def tell_new(recipe: Recipe, path: Path) -> None:
    """How to use what was built."""
    print_diagnostic(f"recipe written to {path}")
    print_diagnostic(
        f'chat with it: fleetchat ask --recipe {recipe.name} "…", or recipe = "{recipe.name}" in [model]'
    )


def _needs(recipe: Recipe) -> Needs | None:
    """None for a recipe of a file that is not there. Raises SourceError for what is no model."""
    from fleetchat.cutter.checkpoint import check_checkpoint, is_checkpoint, weight_bytes
    from fleetchat.cutter.estimate import needs
    from fleetchat.cutter.export import check_exporter
    from fleetchat.cutter.hub import list_repository
    from fleetchat.cutter.recipe import HubSource, PathSource
    from fleetchat.cutter.source import check_given

    source = recipe.source
    if isinstance(source, HubSource):
        listing = list_repository(source)
        if listing.is_checkpoint:
            check_exporter()
        kind = "checkpoint" if listing.is_checkpoint else "ir"
        kind = "gguf" if any(file.name.endswith(".gguf") for file in listing.files) else kind
        return needs(kind, listing.size, source.weights, fetched=listing.size)
    assert isinstance(source, PathSource)
    if source.path.exists():
        check_given(source.path)
    if is_checkpoint(source.path):
        check_checkpoint(source.path)
        check_exporter()
        return needs("checkpoint", weight_bytes(source.path), source.weights, fetched=0)
    if source.path.is_dir():
        size = sum(file.stat().st_size for file in source.path.iterdir() if file.is_file())
        return needs("ir", size, source.weights, fetched=0)
    return (
        needs("gguf", source.path.stat().st_size, source.weights, fetched=0)
        if source.path.is_file()
        else None
    )


def _check(needed: Needs, store: Store) -> None:
    import shutil

    from fleetchat.cutter.estimate import check_room
    from fleetchat.engine.memory import available_memory

    place = store.root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    check_room(needed, disk=free, memory=available_memory(), place=str(store.root))
