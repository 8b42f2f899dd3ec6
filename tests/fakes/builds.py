"""Builds of random bytes: whole for everything but an engine."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from fleetchat.cutter.files import sha256_of
from fleetchat.cutter.manifest import Manifest, StoredFile
from fleetchat.cutter.store import Store
from tests.peer.builders import BUILD, manifest

SIZES = {"xml": 200_000, "bin": 4_000_000}


def write_build(root: Path, stages: int = 2, seed: int = 0) -> tuple[Store, Manifest]:
    """A build of random files."""
    store = Store(root)
    folder = store.folder(BUILD)
    folder.mkdir(parents=True)
    noise = random.Random(seed)
    entries = []
    for entry in manifest(stages).stages:
        files = {}
        for ending, size in SIZES.items():
            name = f"stage-{entry.index:02}.{ending}"
            (folder / name).write_bytes(noise.randbytes(size))
            files[ending] = StoredFile(name, size, sha256_of(folder / name))
        entries.append(replace(entry, **files))
    made = replace(manifest(stages), stages=tuple(entries))
    store.write_manifest(folder, made)
    return store, made
