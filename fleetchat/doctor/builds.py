"""The shards of the configured model: there, undamaged, of this version?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetchat.cutter.checkpoint import is_checkpoint
from fleetchat.cutter.manifest import CUTTER_FORMAT, Manifest
from fleetchat.cutter.partition import LayerRange
from fleetchat.cutter.recipe import HubSource, PathSource, Recipe
from fleetchat.cutter.source import known_source, obtain
from fleetchat.cutter.store import Store, files_of, matches, megabytes
from fleetchat.cutter.unused import unused_folders
from fleetchat.doctor.finding import Finding, fail, ok, warn
from fleetchat.errors import ShardDamaged

NAME = "shards"
REMOVE = "fleetchat shards rm --unused"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The build that a start would look for. `source`, `converter` None: not known, any will do."""

    recipe: Recipe
    stages: int
    source: str | None
    converter: str | None
    layers: tuple[LayerRange, ...] | None = None  # that the peers were given

    @property
    def ranges(self) -> tuple[LayerRange, ...] | None:
        """Layers that the peers or the recipe cut by hand."""
        if self.layers is not None:
            return self.layers
        return self.recipe.layers if self.stages == self.recipe.stages else None

    @property
    def command(self) -> str:
        """What builds it."""
        cut = ""
        if self.layers is not None:
            cut = f" --layers {','.join(f'{first}-{last}' for first, last in self.layers)}"
        return f"fleetchat shards build {self.recipe.name} --stages {self.stages}{cut}"

    @property
    def title(self) -> str:
        return f"{self.recipe.name} in {self.stages} stage{'' if self.stages == 1 else 's'}"


def source_identity(recipe: Recipe, store: Store) -> str | None:
    """SHA-256 that names the model's source; None when only a build can tell it.

    A local file is read for it, but nothing is fetched or exported. Raises SourceError.
    """
    known = known_source(recipe, None, store)
    if known is not None:
        return known.identity
    if not isinstance(recipe.source, PathSource) or is_checkpoint(recipe.source.path):
        return None
    return obtain(recipe, None, store, lambda step, done, total: None).identity


def current_converter(recipe: Recipe) -> str | None:
    """What would convert the model now; None when only a build can tell it.

    Loads OpenVINO into this process: probe it first.
    """
    from fleetchat.cutter.source import GgufSource, IrSource
    from fleetchat.cutter.whole import converter_of

    if isinstance(recipe.source, HubSource):
        return None
    exported = isinstance(recipe.source, PathSource) and recipe.source.path.is_dir()
    return converter_of(IrSource(Path(), "") if exported else GgufSource(Path(), ""))


def find_wanted(store: Store, wanted: Wanted) -> Manifest | None:
    """The newest build that a start would take; its files are not checked. As `cutter.build` chooses."""
    for manifest in reversed(store.builds()):
        if (
            wanted.recipe.name in manifest.recipes
            and wanted.recipe.context in (None, manifest.context)
            and wanted.converter in (None, manifest.converter)
            and matches(manifest, wanted.stages, wanted.ranges, wanted.source)
        ):
            return manifest
    return None


def check_builds(store: Store, wanted: Wanted, build: Manifest | None) -> Finding:
    """Hash the files of `build`; say why there is none where there is none."""
    if build is None:
        return _missing(store, wanted)
    try:
        store.verify(build)
    except ShardDamaged as damage:
        return fail(
            NAME,
            damage.message,
            f"{wanted.command}; when it comes back, look after the disk",
            "the next start builds them again by itself",
        )
    files = files_of(build)
    size = megabytes(sum(file.size for file in files))
    text = f"{wanted.title}, {size}, {len(files)} files as they were built"
    return ok(NAME, text, *_unused(store))


def _missing(store: Store, wanted: Wanted) -> Finding:
    others = [one for one in store.builds() if wanted.recipe.name in one.recipes]
    same_cut = [one for one in others if len(one.stages) == wanted.stages]
    old = [one for one in same_cut if one.format != CUTTER_FORMAT]
    if old:
        why = (
            f"the shards of {wanted.title} are old: cutter format {old[-1].format}, "
            f"this fleetchat uses {CUTTER_FORMAT}"
        )
    elif same_cut and wanted.converter not in (None, same_cut[-1].converter):
        why = (
            f"the shards of {wanted.title} are old: made by {same_cut[-1].converter}, "
            f"now it would be {wanted.converter}"
        )
    elif same_cut:
        why = f"the shards of {wanted.title} are of another model file, or cut in another way"
    else:
        why = f"there are no shards of {wanted.title} yet"
    remedy = f"{wanted.command}, or just start: the first start builds them"
    if same_cut:
        remedy = f"{wanted.command} (or just start), then {REMOVE}"
    return warn(NAME, why, remedy, *_unused(store))


def _unused(store: Store) -> list[str]:
    """Builds that no version of today reads."""
    old = [folder for folder in unused_folders(store) if folder.parent == store.build_folder]
    if not old:
        return []
    size = megabytes(sum(file.stat().st_size for folder in old for file in folder.glob("*")))
    builds = (
        "1 build of another cutter format takes"
        if len(old) == 1
        else (f"{len(old)} builds of another cutter format take")
    )
    return [f"{builds} {size}; `{REMOVE}` removes what is not needed"]
