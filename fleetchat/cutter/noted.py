"""What earlier builds found out about a source: so that a start neither hashes, fetches nor exports again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fleetchat.cutter.files import replace, write_text
from fleetchat.cutter.manifest_file import from_json, to_json
from fleetchat.cutter.recipe import HubSource, PathSource
from fleetchat.cutter.store import Store


@dataclass(frozen=True, slots=True)
class Noted:
    """Kind (`gguf` or `ir`) and identity of a source; `stamps` of its files, none for one of the hub."""

    kind: str
    identity: str
    stamps: tuple[str, ...]


def note(asked: PathSource | HubSource, noted: Noted, store: Store) -> None:
    """Keep what was found."""
    path = _path(asked, store)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    write_text(fresh, to_json(noted))
    replace(fresh, path)


def recall(asked: PathSource | HubSource, store: Store) -> Noted | None:
    """What was found, unless a file of it has changed since."""
    try:
        noted = from_json(Noted, _path(asked, store).read_text(encoding="utf-8"))
        now = stamps(asked.path) if isinstance(asked, PathSource) else ()
    except (OSError, ValueError):
        return None
    return noted if noted.stamps == now else None


def stamps(path: Path) -> tuple[str, ...]:
    """Name, size and time of change of a file, or of the files in a folder. Raises OSError."""
    files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    found = [(file.name, file.stat()) for file in files]
    return tuple(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in found)


def _path(asked: PathSource | HubSource, store: Store) -> Path:
    named = {name: str(value) for name, value in asdict(asked).items()}
    if isinstance(asked, PathSource):
        named["path"] = str(asked.path.absolute())
    key = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return store.root / "sources" / f"{key}.json"
