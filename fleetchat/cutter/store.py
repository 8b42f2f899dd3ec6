"""The shard store: builds, whole models and downloads, each there whole or not at all.

builds/<build key>/      manifest.json, the stages' IRs, tokenizer.json, chat_template.jinja
whole/<hash>/            whole.json, the converted and repaired model with its tokenizer files
downloads/<sha256>…      model files as they were fetched
temporary/               what a running build works on; leftovers of dead builds are removed
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetchat.cutter import lock
from fleetchat.cutter.files import publish, replace, sha256_of, write_text
from fleetchat.cutter.manifest import CUTTER_FORMAT, Manifest, StoredFile
from fleetchat.cutter.manifest_file import from_json, to_json
from fleetchat.cutter.partition import LayerRange
from fleetchat.errors import DiskFull, ShardDamaged
from fleetchat.ids import BuildKey

MANIFEST = "manifest.json"


class Store:
    """A folder with builds. Nothing is created before something is stored."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build_folder = root / "builds"
        self.whole_folder = root / "whole"
        self.download_folder = root / "downloads"
        self.temporary_folder = root / "temporary"

    def builds(self) -> list[Manifest]:
        """All builds whose manifest can be read, the newest last; files are not checked."""
        if not self.build_folder.is_dir():
            return []
        found = [self._read(folder) for folder in self.build_folder.iterdir() if folder.is_dir()]
        return sorted((one for one in found if one is not None), key=lambda one: (one.created, one.build_key))

    def find(self, build_key: BuildKey) -> Manifest | None:
        """The build with that key; None when there is none or its manifest cannot be read."""
        folder = self.folder(build_key)
        return self._read(folder) if len(build_key) == 64 and build_key.isalnum() else None

    def find_recipe(
        self,
        recipe_name: str,
        stages: int,
        *,
        ranges: tuple[LayerRange, ...] | None = None,
        source: str | None = None,
    ) -> Manifest | None:
        """The newest build of a recipe by this cutter format; files are not checked.

        `ranges` None asks for the cut that the cutter balances itself; `source` None takes any.
        """
        for manifest in reversed(self.builds()):
            if recipe_name in manifest.recipes and matches(manifest, stages, ranges, source):
                return manifest
        return None

    def folder(self, build_key: BuildKey) -> Path:
        """Where a build is, or would be."""
        return self.build_folder / build_key

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        """The IR of a stage."""
        return self.folder(manifest.build_key) / manifest.stages[index].xml.name

    def whole(self, manifest: Manifest) -> Path | None:
        """Folder of the whole model that a build was cut from; None when it was removed."""
        folder = self.whole_folder / manifest.extra.get("whole", "-")
        return folder if folder.is_dir() else None

    def verify(self, manifest: Manifest, stage: int | None = None) -> None:
        """Compare the files of a build, or what one stage of it needs, with their hashes.

        Raises ShardDamaged for the first that is missing or differs.
        """
        folder, again = self.folder(manifest.build_key), f"build it again: {build_command(manifest)}"
        for file in files_of(manifest, stage):
            verify_file(folder, file, again)

    def write_manifest(self, folder: Path, manifest: Manifest) -> None:
        """Put the manifest into a folder that is being filled; `publish` it afterwards."""
        write_text(folder / MANIFEST, to_json(manifest))

    def publish(self, folder: Path, manifest: Manifest) -> None:
        """Make a finished temporary folder the build that its manifest describes."""
        self.write_manifest(folder, manifest)
        publish(folder, self.folder(manifest.build_key))

    def rename(self, manifest: Manifest) -> None:
        """Write the manifest of a build that is there anew: other recipes, the same shards."""
        folder = self.folder(manifest.build_key)
        fresh = folder / f"{MANIFEST}.new"
        write_text(fresh, to_json(manifest))
        replace(fresh, folder / MANIFEST)

    def remove(self, build_key: BuildKey) -> None:
        """Remove one build. It is renamed first, so that it is never seen half-removed."""
        self.remove_folder(self.folder(build_key))

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder of this store in one step."""
        with self.temporary("removed") as aside:
            os.replace(folder, aside / folder.name)

    @contextmanager
    def temporary(self, purpose: str) -> Iterator[Path]:
        """An empty folder on the store's filesystem, removed at the end with what is still in it."""
        folder = self.temporary_folder / f"{purpose}-{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def locked(self, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """One build at a time; leftovers of dead builds are removed first."""
        with lock.locked(self.root / "build.lock", on_wait):
            self._remove_leftovers()
            yield

    def sweep(self) -> None:
        """Remove what builds that were killed left half-built, unless another build is under way."""
        if not self.temporary_folder.is_dir() or not any(self.temporary_folder.iterdir()):
            return
        with lock.locked_if_free(self.root / "build.lock") as held:
            if held:
                self._remove_leftovers()

    def check_space(self, needed: int) -> None:
        """Raise DiskFull unless `needed` bytes are free."""
        free = shutil.disk_usage(_existing(self.root)).free
        if free < needed:
            raise DiskFull(
                f"not enough disk space in {self.root}: {megabytes(needed)} needed, {megabytes(free)} free",
                hint="free some space, remove builds with `fleetchat shards rm`, or choose --store DIR",
            )

    def _remove_leftovers(self) -> None:
        if not self.temporary_folder.is_dir():
            return
        for folder in self.temporary_folder.iterdir():
            owner = folder.name.split("-")[1] if folder.name.count("-") == 2 else ""
            if not owner.isdecimal() or not lock.process_alive(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)

    def _read(self, folder: Path) -> Manifest | None:
        try:
            manifest = from_json(Manifest, (folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return manifest if manifest.build_key == folder.name and names_are_plain(manifest) else None


def matches(
    manifest: Manifest, stages: int, ranges: tuple[LayerRange, ...] | None, source: str | None
) -> bool:
    """Whether a build is by this cutter format, of that source, and cut as asked for."""
    own = tuple((stage.first_layer, stage.last_layer) for stage in manifest.stages)
    cut = own == ranges if ranges is not None else manifest.extra.get("cut") == "balanced"
    of_source = source is None or manifest.source == source
    return cut and of_source and manifest.format == CUTTER_FORMAT and len(manifest.stages) == stages


def files_of(manifest: Manifest, stage: int | None = None) -> tuple[StoredFile, ...]:
    """The files of a build, or of one of its stages."""
    if stage is not None:
        return (manifest.stages[stage].xml, manifest.stages[stage].bin)
    shards = [file for entry in manifest.stages for file in (entry.xml, entry.bin)]
    return (*shards, manifest.tokenizer, manifest.template)


def build_command(manifest: Manifest) -> str:
    """What builds it again."""
    cut = ",".join(f"{stage.first_layer}-{stage.last_layer}" for stage in manifest.stages)
    by_hand = f" --layers {cut}" if manifest.extra.get("cut") == "by hand" else ""
    return f"fleetchat shards build {manifest.recipe} --stages {len(manifest.stages)}{by_hand}"


def verify_file(folder: Path, file: StoredFile, hint: str | None = None) -> None:
    """Raise ShardDamaged, with the hint, unless the file has the recorded size and hash."""
    path = folder / file.name
    try:
        size = path.stat().st_size
        if size != file.size:
            raise ShardDamaged(f"{path} has {size} bytes instead of {file.size}", hint=hint)
        if sha256_of(path) != file.sha256:
            raise ShardDamaged(f"{path} was changed: its SHA-256 differs from the manifest", hint=hint)
    except OSError as error:
        raise ShardDamaged(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error


def megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:,.0f} MB"


def names_are_plain(manifest: Manifest) -> bool:
    """A manifest must not reach outside of its folder."""
    names = [file.name for file in files_of(manifest)]
    return all(name and Path(name).name == name and "\\" not in name for name in names)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
