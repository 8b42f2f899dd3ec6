"""What of a store no usable build needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetchat.cutter.manifest import CUTTER_FORMAT
from fleetchat.cutter.received import ReceivedStore
from fleetchat.cutter.store import Store


def unused_folders(store: Store) -> list[Path]:
    """Builds and received shards of another cutter format or without manifest, whole models without a build,
    downloads.

    All of it can be made or fetched again.
    """
    usable = [manifest for manifest in store.builds() if manifest.format == CUTTER_FORMAT]
    keys = {manifest.build_key for manifest in usable}
    wholes = {manifest.extra.get("whole") for manifest in usable}
    return [
        *(folder for folder in _folders(store.build_folder) if folder.name not in keys),
        *(folder for folder in _folders(store.whole_folder) if folder.name not in wholes),
        *_folders(store.download_folder),
        *_unused_received(ReceivedStore(store.root)),
    ]


def _unused_received(store: ReceivedStore) -> list[Path]:
    """Of which no stage is whole, or which another cutter format made."""
    usable = [one for one in store.builds() if one.format == CUTTER_FORMAT and store.stages_of(one)]
    keys = {manifest.build_key for manifest in usable}
    return [folder for folder in _folders(store.build_folder) if folder.name not in keys]


def remove_unused(store: Store) -> Iterator[tuple[str, int]]:
    """Remove those folders; yields the name (`whole/…`) and the bytes of each."""
    for folder in unused_folders(store):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        store.remove_folder(folder)
        yield f"{folder.parent.name}/{folder.name[:12]}", size


def _folders(parent: Path) -> list[Path]:
    return sorted(folder for folder in parent.iterdir() if folder.is_dir()) if parent.is_dir() else []
